# What the nodes may do in OpenBao: read the secrets of deployments. Where each
# deployment has a credential of its own, its identifier is to stand in the place
# of the +.
path "secret/data/deployments/+/secret/*" {
  capabilities = ["read"]
}
