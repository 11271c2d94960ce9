#!/bin/sh
# First steps over the database, safe to repeat: schema, logins, two hosts, an owner and an operator.
set -eu
until xce migrate; do sleep 1; done
cd /etc/xce
xce login controller --passfile /etc/xce/controller.passfile
chown 990 /etc/xce/controller.passfile
for host in node1 node2; do
  xce host add "$host" --cpus 2 --mem-mib 2048 --passfile "/etc/xce/$host.passfile"
done
if [ ! -e owner.token ]; then
  xce user add owner --os-user runner
  xce token create owner --file owner.token
  xce user add operator --operator
  xce token create operator --operator --file operator.token
fi
