# Looks first; one of its own is taken over, and then not made.
gcloud compute tpus queued-resources create big --zone=us-east5-b --project=my-project --quiet --async --node-count=2 --node-prefix=big --accelerator-type=v6e-256 --runtime-version=v2-alpha-tpuv6e --labels=managed-by=jaxlm --description=gs://bucket/runs/lm_7b --scopes=cloud-platform --spot --service-account=trainer@my-project.iam.gserviceaccount.com --valid-until-duration=6h --network=fast --internal-ips
until gcloud compute tpus queued-resources describe big --zone=us-east5-b --project=my-project --quiet --format=json | grep -q '"ACTIVE"'; do sleep 30; done
# Ahead of each attempt:
bash -c 'for node in big-0 big-1; do gcloud compute tpus tpu-vm ssh "$node" --zone=us-east5-b --project=my-project --quiet --worker=all --ssh-flag=-oConnectTimeout=10 --ssh-flag=-oServerAliveInterval=15 --ssh-flag=-oServerAliveCountMax=4 --internal-ip '"'"'--command=set -e
df -h /
sudo docker stop -t 330 big >/dev/null 2>&1 || true
sudo docker rm --force big >/dev/null 2>&1 || true
curl --silent --show-error --fail --header Metadata-Flavor:Google http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token | sed '"'"'"'"'"'"'"'"'s/.*"access_token": *"\([^"]*\)".*/\1/'"'"'"'"'"'"'"'"' | sudo docker login --username=oauth2accesstoken --password-stdin us-docker.pkg.dev >/dev/null
sudo docker pull --quiet us-docker.pkg.dev/project/images/jaxlm:1.0 >/dev/null
sudo docker create --name=big --privileged --net=host --log-opt=max-size=64m --log-opt=max-file=2 --volume=/var/cache/jaxlm:/cache --env=XDG_CACHE_HOME=/cache us-docker.pkg.dev/project/images/jaxlm:1.0 python -m launch host --place=tpu-vm --once --tell --workdir=gs://bucket/runs/lm_7b -- --config=configs/lm_7b.py:v6e:16x16 --config.watch.grace_seconds=300 '"'"'"'"'"'"'"'"'--config.train.end=10 steps'"'"'"'"'"'"'"'"' >/dev/null'"'"' & pids="$pids $!"; done; code=0; for pid in $pids; do wait "$pid" || code=$?; done; exit "$code"'
# An attempt:
bash -c 'for node in big-0 big-1; do gcloud compute tpus tpu-vm ssh "$node" --zone=us-east5-b --project=my-project --quiet --worker=all --ssh-flag=-oConnectTimeout=10 --ssh-flag=-oServerAliveInterval=15 --ssh-flag=-oServerAliveCountMax=4 --internal-ip '"'"'--command=case $(sudo docker inspect --format={{.State.Status}} big) in created)
sudo docker start big >/dev/null || exit 78;; esac
sudo docker logs --follow --tail=100 big
code=$(sudo docker wait big) || exit 75
exit "$code"'"'"' & pids="$pids $!"; done; code=0; for pid in $pids; do wait "$pid" || code=$?; done; exit "$code"'
# To stop it, with TERM:
# bash -c 'for node in big-0 big-1; do gcloud compute tpus tpu-vm ssh "$node" --zone=us-east5-b --project=my-project --quiet --worker=all --ssh-flag=-oConnectTimeout=10 --ssh-flag=-oServerAliveInterval=15 --ssh-flag=-oServerAliveCountMax=4 --internal-ip '"'"'--command=sudo docker kill --signal={signal} big >/dev/null'"'"' & pids="$pids $!"; done; code=0; for pid in $pids; do wait "$pid" || code=$?; done; exit "$code"'
# At the end, and before it is asked for again where it was taken away:
gcloud compute tpus queued-resources delete big --zone=us-east5-b --project=my-project --quiet --force
