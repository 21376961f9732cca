// The program that writes the Grafana dashboards, kept out of the product's own dependencies.
module sandbox-provisioner/hack/dashboards

go 1.26.0

require github.com/grafana/grafana-foundation-sdk/go v0.0.22
