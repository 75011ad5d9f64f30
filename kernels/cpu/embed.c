/* Embeddings. Forward goes by rows. Backward goes by strips of columns with tokens in order, so
 * that no two threads write the same elements. */
#include "base/numbers.h"
#include "kernels/cpu/cpu.h"

#include <string.h>

static void embed_row(float *y, const float *token, const float *place, int64_t c)
{
	if (token && place) {
		#pragma omp simd
		for (int64_t j = 0; j < c; j++)
			y[j] = token[j] + place[j];
	} else if (token || place) {
		memcpy(y, token ? token : place, (size_t)c * sizeof *y);
	} else {
		memset(y, 0, (size_t)c * sizeof *y);
	}
}

static void embed_fwd(struct backend *k, void *yv, const int32_t *tokens, const int32_t *positions,
		      const void *wtev, const void *wpev, int64_t n, int64_t c, int32_t lo,
		      int32_t hi)
{
	float *y = yv;
	const float *wte = wtev, *wpe = wpev;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * c))
	for (int64_t i = 0; i < n; i++) {
		bool mine = tokens[i] >= lo && tokens[i] < hi;
		embed_row(y + i * c, mine ? wte + (int64_t)(tokens[i] - lo) * c : NULL,
			  wpe ? wpe + positions[i] * c : NULL, c);
	}
}

static void add_strip(float *restrict to, const float *restrict from, int64_t w)
{
	for (int64_t l = 0; l < w; l++)
		to[l] += from[l];
}

static void embed_bwd(struct backend *k, float *dwte, float *dwpe, const void *dyv,
		      const int32_t *tokens, const int32_t *positions, int64_t n, int64_t c,
		      int32_t lo, int32_t hi)
{
	const float *dy = dyv;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * c))
	for (int64_t j = 0; j < c; j += CPU_STRIP) {
		int64_t w = min_int64(CPU_STRIP, c - j);
		for (int64_t i = 0; i < n; i++) {
			if (dwte && tokens[i] >= lo && tokens[i] < hi)
				add_strip(dwte + (int64_t)(tokens[i] - lo) * c + j, dy + i * c + j,
					  w);
			if (dwpe)
				add_strip(dwpe + positions[i] * c + j, dy + i * c + j, w);
		}
	}
}

void CPU(embed)(struct ops *o)
{
	o->embed_fwd = embed_fwd;
	o->embed_bwd = embed_bwd;
}
