# What slipway may do in OpenBao, and no more: the secrets of deployments below
# secret/deployments/<deployment>/secret/, and its own token. Other names of the
# mount (SLIPWAY_OPENBAO_MOUNT) or of the folder (SLIPWAY_OPENBAO_ROOT) are to be
# changed in every path.

# Values: written at submits; read to copy one to a new name of its field, and to
# see whether a write whose answer was lost has arrived.
path "secret/data/deployments/+/secret/+/+" {
  capabilities = ["create", "read", "update"]
}

# Which secrets there are, and their end: after a clear, and with the deployment.
path "secret/metadata/deployments/+/secret/*" {
  capabilities = ["list", "read", "delete"]
}
path "secret/detailed-metadata/deployments/+/secret/*" {
  capabilities = ["list"]
}
path "secret/destroy/deployments/+/secret/+/+" {
  capabilities = ["update"]
}

# Values on their way from the API to a worker: a token for one use, for 60 s.
path "sys/wrapping/wrap" {
  capabilities = ["update"]
}

# Its own token.
path "auth/token/lookup-self" {
  capabilities = ["read"]
}
path "auth/token/renew-self" {
  capabilities = ["update"]
}
