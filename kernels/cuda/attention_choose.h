/*
 * attention_choose — which kernels compute attention: cuDNN's, or muster's own.
 *
 * Own kernels do everything. cuDNN's are used for what its engines compute as kernels/ops.h
 * describes it:
 *
 *                              | cuDNN forward       | cuDNN backward      | own
 *     storage                  | bf16, fp16          | bf16, fp16          | any
 *     dim                      | multiple of 8; at most 128, on 9.x 256    | even, at most 256
 *     compute capability       | 8.0 and newer       | 8.x, 9.x, 12.x      | 8.0 and newer
 *     keys                     | q_first = k_first, or all before q_first  | any
 *     heads of a group         | any                 | any                 | any
 *     rows                     | whole pieces of 16 bytes                  | any
 *     documents (starts)       | of whole sequences  | the same, only 9.x  | any
 *     dropout                  | no: other random numbers                  | yes
 *     one query (KV cache)     | no                  | no                  | yes
 *     add                      | -                   | no                  | yes
 *     workspace                | in the scratch      | see attention_room  | none
 *     same bits in every run   | yes                 | yes                 | yes
 *
 * On 10.x a deterministic backward pass needs an engine and knobs that no heuristic returns. If the
 * backend may add in any order (backend_allow_any_order, job.deterministic = any-order), there is a fourth
 * column, cuDNN's backward pass in that form: as cuDNN's backward pass, but also on 10.x, with less
 * workspace, and other bits in every run (dnn_attention.h). On an H100, PyTorch's backward pass,
 * which has that form, took 0.73 to 0.93 of the time of cuDNN's other form.
 *
 * Documents are a mask in the same graph, which reads `starts` where they are (dnn_attention.h).
 * muster uses a mask from starts because it does not bound the number of documents, nothing is
 * built or kept, and a recorded graph follows the data. cuDNN 9.19 has the same engines for it as
 * without documents (forward on 8.0 and newer, backward on 9.x), with the same workspace. It
 * computes what the mask hides, which own kernels skip. The alternatives have disadvantages:
 *   - Ragged tensors with padding: each document is an entry of the batch, whose offsets and
 *     lengths a kernel would derive from starts. It skips what is hidden, but the plan fixes the
 *     number of entries, and the deterministic backward pass keeps entries * heads * longest^2
 *     scores: 17 GB for 64 documents in 8 sequences of 2048 tokens with 32 heads. cudnn-frontend
 *     refuses it as deterministic on 8.x and 12.x.
 *   - A bias of batch * q_len * k_len elements. Engines for it exist on 8.x and 12.x too, but it has
 *     to be built and read for each layer, or kept.
 * Which way is faster, cuDNN's or muster's own, depends on how long documents are: the first batch
 * that is measured stands for all.
 *
 * The choice, "own", "cudnn" or "cudnn-any" (in any order), is kept for each shape (base/choices.h).
 * A backward pass that may add in any order has a key of its own. If choices are wanted, the first
 * use of a shape outside of a recorded graph makes cuDNN's plans and measures all ways
 * (attention_measure.c).
 * What is not in the choices follows a fixed rule: forward without documents by cuDNN on 9.x and
 * 10.x; the rest, which is all that needs a workspace, by own kernels. So the bits are the same in
 * every run with the same choices.
 *
 * A plan is made once, and its workspace allocated, outside of recorded graphs. A graph that is
 * recorded before that has own kernels.
 *
 * Everything that goes wrong with cuDNN (the library is missing or too old, a graph is refused, no
 * memory for the workspace, execution fails) has one result: own kernels, and a sentence for the
 * log (backend_notice).
 */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_CHOOSE_H
#define MUSTER_KERNELS_CUDA_ATTENTION_CHOOSE_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Own kernels (attention.cu). */
void attention_own_fwd(struct backend *k, void *o, float *lse, const void *q, const void *key,
		       const void *v, const struct attn_shape *s);
void attention_own_bwd(struct backend *k, void *dq, void *dk, void *dv, const void *dout,
		       const void *o, const float *lse, const void *q, const void *key,
		       const void *v, const struct attn_shape *s, bool add);

/* The ops. */
void attention_chosen_fwd(struct backend *k, void *o, float *lse, const void *q, const void *key,
			  const void *v, const struct attn_shape *s);
void attention_chosen_bwd(struct backend *k, void *dq, void *dk, void *dv, const void *dout,
			  const void *o, const float *lse, const void *q, const void *key,
			  const void *v, const struct attn_shape *s, bool add);

/* cuDNN's version; 0: it cannot be used, or not with this storage type. */
size_t cuda_attention_version(const struct backend *k);

/* Frees plans and workspace. */
void cuda_attention_close(struct backend *k);

#ifdef __cplusplus
}
#endif

#endif
