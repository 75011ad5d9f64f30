/* attention_host — the passes of attention that attention.cu queues, and the sizes of their
 * launches. */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_HOST_CUH
#define MUSTER_KERNELS_CUDA_ATTENTION_HOST_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/launch.cuh"

/* On tensor cores: storage of 2 bytes, dim at most 128, rows of whole 16 bytes. Each sets
 * a->stages. The backward passes need a->queries. */
void attention_fwd_tiles(struct backend *k, struct attention *a);
void attention_bwd_q_tiles(struct backend *k, struct attention *a);
void attention_bwd_kv_tiles(struct backend *k, struct attention *a);

/* For any storage type, size and alignment. */
void attention_fwd_any(struct backend *k, struct attention *a);
void attention_bwd_any(struct backend *k, struct attention *a);

/* Two stages, unless only one lets two blocks share a multiprocessor. */
static inline int attention_stages(const struct backend *k, size_t fixed, size_t stage)
{
	size_t most = cuda_of(k)->shared_most;
	bool two_share = most >= 2 * (fixed + 2 * stage), one_shares = most >= 2 * (fixed + stage);
	return one_shares && !two_share ? 1 : 2;
}

/* One block for each tile of `rows` rows of each pair. */
static inline unsigned attention_blocks(int64_t pairs, int64_t rows, int tile)
{
	return (unsigned)(pairs * ((rows + tile - 1) / tile));
}

#endif
