/*
 * hash — FNV-1a of 64 bits, for tables and identifiers.
 *
 * Source: Fowler, Noll, Vo, "The FNV Non-Cryptographic Hash Algorithm" (IETF draft
 * draft-eastlake-fnv). It is not for input that an attacker chooses.
 */
#ifndef MUSTER_BASE_HASH_H
#define MUSTER_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* The hash of n bytes. */
uint64_t hash_bytes(const void *data, size_t n);
/* The hash of a text without its NUL. */
uint64_t hash_text(const char *text);

#endif
