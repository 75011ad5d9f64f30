#include "agent/model/model.h"

#include "base/philox.h"

#include <math.h>

/* FNV-1a, 64 bits: the item of a parameter's stream of numbers. */
static uint64_t name_hash(const char *name)
{
	uint64_t h = 0xcbf29ce484222325u;
	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 0x100000001b3u;
	return h;
}

/* Row by row of the box, as far as [first, first + count) reaches: rows of the box are runs of the whole tensor. */
static void fill_normal(const struct param *p, double std, uint64_t seed, int64_t first, int64_t count, float *out)
{
	struct philox_key key = philox_key(seed, PHILOX_INIT, name_hash(p->name));
	int64_t width = p->hi[1] - p->lo[1];

	for (int64_t done = 0; done < count;) {
		int64_t row = (first + done) / width, column = (first + done) % width;
		int64_t n = width - column < count - done ? width - column : count - done;
		philox_normal(key, (uint64_t)((p->lo[0] + row) * p->shape[1] + p->lo[1] + column), (size_t)n, out + done);
		done += n;
	}
	for (int64_t i = 0; i < count; i++)
		out[i] *= (float)std;
}

void model_init(const struct param *p, const struct model_shape *shape, uint64_t seed, int64_t first, int64_t count, float *out)
{
	const double std[] = { [INIT_NORMAL] = shape->init_std, [INIT_NORMAL_SCALED] = shape->init_std / sqrt(2.0 * (double)shape->layers) };
	if (p->init == INIT_NORMAL || p->init == INIT_NORMAL_SCALED) {
		fill_normal(p, std[p->init], seed, first, count, out);
		return;
	}
	for (int64_t i = 0; i < count; i++)
		out[i] = p->init == INIT_ONE;
}
