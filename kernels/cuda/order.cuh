/*
 * order — a stable counting sort of items by a small key, by one block.
 *
 * Every warp has a range of the items. order_count counts the keys of each range. order_begin turns
 * the counts into the place of the first item of each range and key. order_place goes over the items
 * again and gives each its place. The result does not depend on which warp is first. All threads of
 * a block of ORDER call each function.
 *
 * A function gives the key of an item. Keys 0 … ORDER_KEYS - 1 are the block's own. Smaller keys come
 * before them and are only counted. Larger keys are ignored.
 */
#ifndef MUSTER_KERNELS_CUDA_ORDER_CUH
#define MUSTER_KERNELS_CUDA_ORDER_CUH

#include "kernels/cuda/reduce.cuh"

#include <stdint.h>

enum {
	ORDER = 1024,
	ORDER_WARPS = ORDER / WARP,
	ORDER_KEYS = 256,
	ORDER_BITS = 8,
	ORDER_TURNS = 4,
	ORDER_NOT = 1 << 30
};

struct order_room {
	int next[ORDER_WARPS][ORDER_KEYS]; /* counts first, then places */
	int first[ORDER_KEYS], count[ORDER_KEYS];
	int sums[ORDER_KEYS / WARP];
};

/* The first of a warp's range of n items. */
__device__ inline int64_t order_first(int64_t n, int warp)
{
	const int64_t each = ((n + ORDER_WARPS - 1) / ORDER_WARPS + WARP - 1) / WARP * WARP;
	return warp * each < n ? warp * each : n;
}

template <class Keys>
__device__ inline void order_keys(int (&key)[ORDER_TURNS], const Keys &keys, int64_t i, int64_t end)
{
	#pragma unroll
	for (int t = 0; t < ORDER_TURNS; t++)
		key[t] = i + t * WARP < end ? keys(i + t * WARP) : (int)ORDER_NOT;
}

__device__ inline bool order_own(int key)
{
	return key >= 0 && key < ORDER_KEYS;
}

/* Returns how many items have keys before the block's. Only its own warp uses a row of `next` until
 * the barriers of this sum. */
template <class Keys>
__device__ inline int order_count(struct order_room &room, const Keys &keys, int64_t n)
{
	const int warp = warp_id();
	const int64_t end = order_first(n, warp + 1);
	int before = 0;
	for (int i = lane_id(); i < ORDER_KEYS; i += WARP)
		room.next[warp][i] = 0;
	__syncwarp();
	for (int64_t i = order_first(n, warp) + lane_id(); i - lane_id() < end;
	     i += ORDER_TURNS * WARP) {
		int key[ORDER_TURNS];
		order_keys(key, keys, i, end);
		#pragma unroll
		for (int t = 0; t < ORDER_TURNS; t++) {
			before += key[t] < 0;
			if (order_own(key[t]))
				atomicAdd(&room.next[warp][key[t]], 1);
		}
	}
	return block_sum(before);
}

/* Sets room.count, the items of each key, and room.first, the place of its first item when `before`
 * items come before the block's. */
__device__ inline void order_begin(struct order_room &room, int before)
{
	const int key = threadIdx.x;
	int sum = 0, upto = 0;
	if (key < ORDER_KEYS) {
		#pragma unroll 8
		for (int w = 0; w < ORDER_WARPS; w++) {
			int count = room.next[w][key];
			room.next[w][key] = sum;
			sum += count;
		}
		upto = sum; /* then the sum of this warp's keys up to this one */
			    #pragma unroll
		for (int step = 1; step < WARP; step *= 2) {
			int other = __shfl_up_sync(WARP_ALL, upto, step);
			upto += lane_id() >= step ? other : 0;
		}
		if (lane_id() == WARP - 1)
			room.sums[warp_id()] = upto;
	}
	__syncthreads();
	if (key < ORDER_KEYS) {
		int first = before + upto - sum;
		for (int w = 0; w < warp_id(); w++)
			first += room.sums[w];
		room.count[key] = sum;
		room.first[key] = first;
		for (int w = 0; w < ORDER_WARPS; w++)
			room.next[w][key] += first;
	}
	__syncthreads();
}

/* The lanes of `among` that have this lane's key. */
__device__ inline unsigned order_peers(int key, unsigned among)
{
	#pragma unroll
	for (int bit = 0; bit < ORDER_BITS; bit++) {
		unsigned set = __ballot_sync(WARP_ALL, key >> bit & 1);
		among &= key >> bit & 1 ? set : ~set;
	}
	return among;
}

/* Calls put(item, key, place) for each item of the block's keys. */
template <class Keys, class Put>
__device__ inline void order_place(struct order_room &room, const Keys &keys, const Put &put,
				   int64_t n)
{
	const int warp = warp_id(), lane = lane_id();
	const int64_t end = order_first(n, warp + 1);
	for (int64_t i = order_first(n, warp) + lane; i - lane < end; i += ORDER_TURNS * WARP) {
		int key[ORDER_TURNS];
		order_keys(key, keys, i, end);
		#pragma unroll
		for (int t = 0; t < ORDER_TURNS; t++) {
			const bool own = order_own(key[t]);
			const unsigned owners = __ballot_sync(WARP_ALL, own);
			if (!owners)
				continue;
			const unsigned peers = order_peers(key[t], owners);
			const int rank = __popc(peers & ((1u << lane) - 1));
			const int place = own ? room.next[warp][key[t]] + rank : 0;
			__syncwarp();
			if (own && rank == 0)
				room.next[warp][key[t]] = place + __popc(peers);
			__syncwarp();
			if (own)
				put(i + t * WARP, key[t], place);
		}
	}
}

#endif
