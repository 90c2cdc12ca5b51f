# One static binary and the root certificates. For several platforms:
#   docker buildx build --platform linux/amd64,linux/arm64 -t registry.example.com/alicloud-ccm:0.1.0 --push .
ARG RUST=1.95
FROM docker.io/library/rust:${RUST}-alpine AS build
RUN apk add --no-cache build-base ca-certificates
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin alicloud-ccm \
 && install -D target/release/alicloud-ccm /image/alicloud-ccm \
 && install -D -m 0644 /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ca-certificates.crt

FROM scratch
COPY --from=build /image/ /
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532:65532
ENTRYPOINT ["/alicloud-ccm"]
CMD ["run"]
