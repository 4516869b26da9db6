/* Shortcuts TCP over IPv4 between sockets of one host: data goes directly into the receive queue of
 * the other socket. Each end of every connection that is established in a control group is recorded;
 * a message goes to the other end if that is recorded, else through TCP. */
#include "bpf.h"

#define AF_INET 2

static long (*const bpf_sock_hash_update)(struct bpf_sock_ops *ops, void *map, void *key, __u64 flags) =
    (void *)BPF_FUNC_sock_hash_update;
static long (*const bpf_msg_redirect_hash)(struct sk_msg_md *msg, void *map, void *key, __u64 flags) =
    (void *)BPF_FUNC_msg_redirect_hash;

/* A connection, seen from one of its ends. Addresses are in network byte order, ports in host byte
 * order. */
struct end {
    __be32 local_address;
    __be32 remote_address;
    __u32 local_port;
    __u32 remote_port;
};

struct {
    NUMBER(type, BPF_MAP_TYPE_SOCKHASH);
    TYPE(key, struct end);
    TYPE(value, __u32);
    NUMBER(max_entries, 65536);
} ends SEC(".maps");

/* Converts a remote port, which the kernel gives in network byte order as 32 bits; local ports are
 * in host byte order. */
INLINE __u32 port(__u32 remote_port) { return __builtin_bswap32(remote_port); }

SEC("sockops")
int dray_established(struct bpf_sock_ops *ops)
{
    if (ops->family != AF_INET)
        return 1;
    if (ops->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB && ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
        return 1;
    struct end here = {
        .local_address = ops->local_ip4,
        .remote_address = ops->remote_ip4,
        .local_port = ops->local_port,
        .remote_port = port(ops->remote_port),
    };
    /* If the map is full, the connection stays with TCP. */
    bpf_sock_hash_update(ops, &ends, &here, BPF_ANY);
    return 1;
}

SEC("sk_msg")
int dray_send(struct sk_msg_md *msg)
{
    struct end there = {
        .local_address = msg->remote_ip4,
        .remote_address = msg->local_ip4,
        .local_port = port(msg->remote_port),
        .remote_port = msg->local_port,
    };
    /* If that end is not recorded, the message goes through TCP. */
    bpf_msg_redirect_hash(msg, &ends, &there, BPF_F_INGRESS);
    return SK_PASS;
}
