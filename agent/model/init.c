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

static void fill_normal(const struct param *p, double std, uint64_t seed, float *out)
{
	struct philox_key key = philox_key(seed, PHILOX_INIT, name_hash(p->name));
	int64_t width = p->hi[1] - p->lo[1];

	for (int64_t row = p->lo[0]; row < p->hi[0]; row++, out += width) {
		philox_normal(key, (uint64_t)(row * p->shape[1] + p->lo[1]), (size_t)width, out);
		for (int64_t i = 0; i < width; i++)
			out[i] *= (float)std;
	}
}

static void fill(const struct param *p, float value, float *out)
{
	for (int64_t i = 0; i < p->count; i++)
		out[i] = value;
}

void model_init(const struct catalogue *c, double init_std, int64_t layers, uint64_t seed, float *params)
{
	for (int i = 0; i < c->n; i++) {
		const struct param *p = &c->params[i];
		switch (p->init) {
		case INIT_ZERO:
			fill(p, 0.0f, params + p->offset);
			break;
		case INIT_ONE:
			fill(p, 1.0f, params + p->offset);
			break;
		case INIT_NORMAL:
			fill_normal(p, init_std, seed, params + p->offset);
			break;
		case INIT_NORMAL_SCALED:
			fill_normal(p, init_std / sqrt(2.0 * (double)layers), seed, params + p->offset);
			break;
		}
	}
}
