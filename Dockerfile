# Sluice's images, from one file:
#
#   docker build -t sluice .                     runtime: the sluice command and TensorFlow's C library, no shell, no Python
#   docker build -t sluice:dev --target dev .    dev: Go, the library with its headers, Python's TensorFlow; services are built from it
#   docker build --build-arg VARIANT=gpu …       either of them with the library for NVIDIA GPUs
#
# "make image" does this with docker, podman or buildah, whichever is there.

# Where things come from. Everything that is fetched into an image is named here.
ARG GO_IMAGE=docker.io/library/golang:1.26-bookworm
ARG RUNTIME_IMAGE=gcr.io/distroless/cc-debian12:latest

# toolchain has what building takes, and the modules in go.sum's versions.
FROM ${GO_IMAGE} AS toolchain
RUN apt-get update \
 && apt-get install --yes --no-install-recommends binutils ca-certificates gcc git libc6-dev make procps python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
# One more certificate authority, for networks whose proxy signs with its own:
# a file of the build's context that holds it (make image CA_BUNDLE=/path/to.pem).
ARG CA_BUNDLE=scripts/image/no-ca.pem
COPY ${CA_BUNDLE} /usr/local/share/ca-certificates/extra/extra.pem
RUN cat /usr/local/share/ca-certificates/extra/extra.pem >> /etc/ssl/certs/ca-certificates.crt
# Unless told, pip's and Go's own defaults, which are public.
ARG PIP_INDEX_URL
ARG GOPROXY
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    PIP_ROOT_USER_ACTION=ignore \
    GOTOOLCHAIN=local \
    GOFLAGS=-buildvcs=false \
    PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /src/sluice
COPY go.mod go.sum ./
RUN go mod download

# library has TensorFlow's wheel, checked against the hashes pinned in cmd/libtensorflow.
FROM toolchain AS library
ARG VARIANT=cpu
ENV SLUICE_LIBTENSORFLOW=/opt/libtensorflow
COPY cmd/libtensorflow cmd/libtensorflow
RUN case ${VARIANT} in cpu) set -- ;; gpu) set -- --gpu ;; *) echo "VARIANT is cpu or gpu, not ${VARIANT}" >&2; exit 2 ;; esac \
 && go run ./cmd/libtensorflow install "$@"
ENV CGO_ENABLED=1 \
    CGO_CFLAGS="-O2 -g -I/opt/libtensorflow/include" \
    CGO_LDFLAGS="-L/opt/libtensorflow/lib -Wl,-rpath,/opt/libtensorflow/lib"

# stripped has what a program needs of it when it runs.
FROM library AS stripped
COPY scripts/image/strip scripts/image/strip
RUN scripts/image/strip /opt/libtensorflow /out/opt/libtensorflow

# build has the command.
FROM library AS build
COPY . .
RUN --mount=type=cache,target=/var/cache/go-build \
    GOCACHE=/var/cache/go-build go build -trimpath -ldflags "-s -w" -o /out/usr/local/bin/sluice ./cmd/sluice \
 && scripts/image/notices /out/usr/share/doc/sluice ./cmd/sluice

# dev is what services are built from, and where the tests run.
FROM library AS dev
COPY scripts/parity/requirements.txt scripts/parity/requirements.txt
ARG VARIANT=cpu
RUN test ${VARIANT} = cpu || set -- --gpu; go run ./cmd/libtensorflow install "$@" --with scripts/parity/requirements.txt
ENV SLUICE_PYTHON=/opt/libtensorflow/venv/bin/python
# The slowest package first: it changes with go.mod alone.
RUN go build github.com/galeone/tensorflow/tensorflow/go/op
COPY . .
RUN go build -o /usr/local/bin/sluice ./cmd/sluice && go build ./...
CMD ["/bin/bash"]

# runtime is what is shipped.
FROM ${RUNTIME_IMAGE} AS runtime
COPY --from=stripped /out /
COPY --from=build /out /
ENV PATH=/usr/local/bin:/usr/bin:/bin \
    TF_CPP_MIN_LOG_LEVEL=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:65532
WORKDIR /work
HEALTHCHECK --interval=1m --timeout=30s --start-period=30s CMD ["sluice", "doctor"]
ENTRYPOINT ["sluice"]
CMD ["--help"]
