# The images of the programs, one target each:
#
#   docker build --target api --build-arg VERSION=$(git describe --tags --always) --build-arg COMMIT=$(git rev-parse --short HEAD) \
#     --tag sandbox-provisioner-api .
#
# "make images" builds the same images without a registry, from programs compiled on this machine: what stands below the line
# "# images" is shared.
FROM golang:1.26.8-bookworm AS build
ENV GOTOOLCHAIN=local
WORKDIR /src
COPY go.mod go.sum ./
COPY hack/docker/roots/go.mod hack/docker/roots/go.sum hack/docker/roots/
RUN go mod download && cd hack/docker/roots && go mod download
COPY cmd cmd
COPY internal internal
COPY hack/docker hack/docker
ARG VERSION=unknown
ARG COMMIT=unknown
RUN hack/docker/compile.sh /out

# images
FROM scratch AS base
ARG VERSION=unknown
ARG COMMIT=unknown
COPY --from=build /out/root /
# Kubernetes can tell only of a number that it is not root.
USER 1000:1000
EXPOSE 9090
LABEL org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$COMMIT \
      org.opencontainers.image.licenses=Apache-2.0

# The checks ask whether the program is alive, and not whether it is ready: some act on the answer, and a restart cures no outage
# of NATS or Kubernetes.
FROM base AS api
LABEL org.opencontainers.image.title=sandbox-provisioner-api \
      org.opencontainers.image.description="Takes requests for sandboxes over HTTP, queues them as jobs on NATS, and answers with their outcomes"
COPY --from=build /out/api /api
EXPOSE 8002
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["/api", "healthcheck"]
ENTRYPOINT ["/api"]

FROM base AS worker
LABEL org.opencontainers.image.title=sandbox-provisioner-worker \
      org.opencontainers.image.description="Takes jobs from NATS and makes the Kubernetes cluster match them"
COPY --from=build /out/worker /worker
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["/worker", "healthcheck"]
ENTRYPOINT ["/worker"]

FROM base AS standalone
LABEL org.opencontainers.image.title=sandbox-provisioner-standalone \
      org.opencontainers.image.description="Does the work of api and worker in one process, with its own NATS server inside"
COPY --from=build --chown=1000:1000 /out/data /
COPY --from=build /out/standalone /standalone
EXPOSE 8002
VOLUME /var/lib/sandbox-provisioner
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["/standalone", "healthcheck"]
ENTRYPOINT ["/standalone"]
