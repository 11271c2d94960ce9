-- Whether the schema that the API needs is there.
select to_regclass('xce.setting') is not null
