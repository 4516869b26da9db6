/* Short-cuts TCP over IPv4 between sockets of one host: what one sends is put into the queue of the
 * other at once. Every connection that is made in a control group is taken note of, at both of its
 * ends; a message whose other end is known goes there, any other one goes by TCP. */
#include "bpf.h"

#define AF_INET 2

static long (*const bpf_sock_hash_update)(struct bpf_sock_ops *ops, void *map, void *key, __u64 flags) =
    (void *)BPF_FUNC_sock_hash_update;
static long (*const bpf_msg_redirect_hash)(struct sk_msg_md *msg, void *map, void *key, __u64 flags) =
    (void *)BPF_FUNC_msg_redirect_hash;

/* A connection, seen from one of its ends. Addresses as they are on the wire, ports as numbers. */
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

/* The kernel shows a local port as a number and a remote one as it is on the wire, 32 bits long. */
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
    /* Where there is no room the connection goes by TCP. */
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
    /* Where that end is not known the message is passed on to TCP. */
    bpf_msg_redirect_hash(msg, &ends, &there, BPF_F_INGRESS);
    return SK_PASS;
}
