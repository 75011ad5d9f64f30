/* Token and position embeddings. This shard holds the rows of tokens lo … hi. */
#include "kernels/reference/reference.h"

static void embed_fwd(struct backend *k, void *yv, const int32_t *tokens, const int32_t *positions,
		      const void *wtev, const void *wpev, int64_t n, int64_t c, int32_t lo,
		      int32_t hi)
{
	(void)k;
	real *y = yv;
	const real *wte = wtev, *wpe = wpev;
	for (int64_t i = 0; i < n; i++) {
		bool mine = tokens[i] >= lo && tokens[i] < hi;
		for (int64_t j = 0; j < c; j++)
			y[i * c + j] = (mine ? wte[(int64_t)(tokens[i] - lo) * c + j] : 0) +
				       (wpe ? wpe[positions[i] * c + j] : 0);
	}
}

static void embed_bwd(struct backend *k, float *dwtef, float *dwpef, const void *dyv,
		      const int32_t *tokens, const int32_t *positions, int64_t n, int64_t c,
		      int32_t lo, int32_t hi)
{
	(void)k;
	real *dwte = (real *)dwtef, *dwpe = (real *)dwpef;
	const real *dy = dyv;
	for (int64_t i = 0; i < n; i++)
		for (int64_t j = 0; j < c; j++) {
			if (dwte && tokens[i] >= lo && tokens[i] < hi)
				dwte[(int64_t)(tokens[i] - lo) * c + j] += dy[i * c + j];
			if (dwpe)
				dwpe[positions[i] * c + j] += dy[i * c + j];
		}
}

void REFERENCE(embed)(struct ops *o)
{
	o->embed_fwd = embed_fwd;
	o->embed_bwd = embed_bwd;
}
