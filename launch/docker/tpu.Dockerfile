# The image of TPU hosts: docker build --file=launch/docker/tpu.Dockerfile --tag=IMAGE .
# Nothing is compiled in it, and pip has its pins. Root, as devices and directories of the node need.
# The digest is that of 2026-09-01 in docker-library/repo-info, repos/python/remote.
FROM python:3.13.15-slim-bookworm@sha256:ed86c82274b3c69b52fb5820f358f0bd7df0b603332063cb5c6e32bd220c3e6e
WORKDIR /jaxlm

COPY pyproject.toml constraints.txt ./
RUN python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
extras = project['optional-dependencies']; \
print(*project['dependencies'], *extras['hf'], *extras['stores'], sep='\\n')" >requirements.txt \
    && pip install --no-cache-dir --only-binary=:all: --constraint=constraints.txt --requirement=requirements.txt 'jax[tpu]'

COPY configs configs
COPY data_tools data_tools
COPY jaxlm jaxlm
COPY launch launch

CMD ["python", "-m", "launch", "--help"]
