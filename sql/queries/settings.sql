-- All settings, and who changed each last.
select s.name,
       s.value,
       s.unit,
       s.why,
       c.at as changed_at,
       u.name as changed_by
  from xce.setting s
  left join lateral (
       select x.at, x.user_id
         from xce.setting_change x
        where x.name = s.name
        order by x.id desc
        limit 1
       ) c on true
  left join xce.user_account u on u.id = c.user_id
 order by s.name
