# Looks first; one of its own is taken over, and then not made.
gcloud compute tpus queued-resources create lm-7b-aa4507 --zone=us-east5-b --quiet --async --node-id=lm-7b-aa4507 --accelerator-type=v5litepod-32 --runtime-version=v2-alpha-tpuv5-lite --labels=managed-by=jaxlm --description=gs://bucket/runs/lm_7b --scopes=cloud-platform
until gcloud compute tpus queued-resources describe lm-7b-aa4507 --zone=us-east5-b --quiet --format=json | grep -q '"ACTIVE"'; do sleep 30; done
# Ahead of each attempt:
gcloud compute tpus tpu-vm ssh lm-7b-aa4507 --zone=us-east5-b --quiet --worker=all --ssh-flag=-oConnectTimeout=10 --ssh-flag=-oServerAliveInterval=15 --ssh-flag=-oServerAliveCountMax=4 '--command=set -e
sudo docker stop -t 150 lm-7b-aa4507 >/dev/null 2>&1 || true
sudo docker rm --force lm-7b-aa4507 >/dev/null 2>&1 || true
curl --silent --show-error --fail --header Metadata-Flavor:Google http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token | sed '"'"'s/.*"access_token": *"\([^"]*\)".*/\1/'"'"' | sudo docker login --username=oauth2accesstoken --password-stdin us-docker.pkg.dev >/dev/null
sudo docker pull --quiet us-docker.pkg.dev/project/images/jaxlm:1.0 >/dev/null
sudo docker create --name=lm-7b-aa4507 --privileged --net=host --log-opt=max-size=64m --log-opt=max-file=2 --volume=/var/cache/jaxlm:/cache --env=XDG_CACHE_HOME=/cache us-docker.pkg.dev/project/images/jaxlm:1.0 python -m launch host --place=tpu-vm --once --tell --workdir=gs://bucket/runs/lm_7b -- --config=configs/lm_7b.py:v5e:4x8 --config.watch.grace_seconds=120 >/dev/null'
# An attempt:
gcloud compute tpus tpu-vm ssh lm-7b-aa4507 --zone=us-east5-b --quiet --worker=all --ssh-flag=-oConnectTimeout=10 --ssh-flag=-oServerAliveInterval=15 --ssh-flag=-oServerAliveCountMax=4 '--command=case $(sudo docker inspect --format={{.State.Status}} lm-7b-aa4507) in created)
sudo docker start lm-7b-aa4507 >/dev/null || exit 78;; esac
sudo docker logs --follow --tail=100 lm-7b-aa4507
code=$(sudo docker wait lm-7b-aa4507) || exit 75
exit "$code"'
# To stop it, with TERM:
# gcloud compute tpus tpu-vm ssh lm-7b-aa4507 --zone=us-east5-b --quiet --worker=all --ssh-flag=-oConnectTimeout=10 --ssh-flag=-oServerAliveInterval=15 --ssh-flag=-oServerAliveCountMax=4 '--command=sudo docker kill --signal={signal} lm-7b-aa4507 >/dev/null'
# At the end, and before it is asked for again where it was taken away:
gcloud compute tpus queued-resources delete lm-7b-aa4507 --zone=us-east5-b --quiet --force
