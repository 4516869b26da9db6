/* Kernel interface of the BPF programs: helpers (bpf-helpers(7)) and macros to declare maps. */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

/* The member types of a struct in the section ".maps" declare a map; numbers are encoded as array
 * lengths. */
#define NUMBER(name, value) int (*name)[value]
#define TYPE(name, type) type *name

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) =
    (void *)BPF_FUNC_map_lookup_elem;
static long (*const bpf_redirect_map)(void *map, __u64 key, __u64 flags) =
    (void *)BPF_FUNC_redirect_map;

static long (*const bpf_ringbuf_output)(void *ring, const void *data, __u64 len, __u64 flags) =
    (void *)BPF_FUNC_ringbuf_output;
static __u64 (*const bpf_ktime_get_coarse_ns)(void) = (void *)BPF_FUNC_ktime_get_coarse_ns;

INLINE __u16 from_big_endian(__u16 value) { return __builtin_bswap16(value); }

/* Licence of the programs, which the loader passes to the kernel. */
char licence_of_program[] SEC("license") = "Dual MIT/GPL";
