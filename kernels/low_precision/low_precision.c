/* Opens storage of 2 bytes over an fp32 backend that is open. */
#include "kernels/low_precision/low_precision.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The conversions built for an instruction set of cpu; other backends use those for any processor. */
static const struct low_precision_type *find_types(const char *isa)
{
#ifdef __x86_64__
	if (!strcmp(isa, "v4"))
		return low_precision_v4_types;
	if (!strcmp(isa, "v3"))
		return low_precision_v3_types;
	if (!strcmp(isa, "v2"))
		return low_precision_v2_types;
#endif
	(void)isa;
	return low_precision_base_types;
}

static const struct low_precision_type *find_type(const struct low_precision_type *types,
						  const char *name)
{
	for (int i = 0; i < LOW_PRECISION_TYPES; i++)
		if (!strcmp(types[i].name, name))
			return &types[i];
	return NULL;
}

static void init_lanes(struct backend *k, struct backend *lanes)
{
	for (int i = 0; i < k->threads; i++)
		lanes[i] = (struct backend){ .ops = k->ops,
					     .threads = 1,
					     .element = sizeof(float),
					     .scratch = backend_scratch(k, i) };
}

/* Ops without operands in the storage type are the fp32 backend's own. Each family enters the
 * others, so that an op that none of them knows is missing instead of wrong. */
static void fill_table(struct ops *o, const struct ops *fp32, const char *name)
{
	*o = (struct ops){ .name = name };
	backend_fill_fp32(o, fp32);
	low_precision_linear(o);
	low_precision_norm(o);
	low_precision_elements(o);
	low_precision_rows(o);
	low_precision_attention(o);
	low_precision_xent(o);
	backend_fill_shared(o, true);
}

int low_precision_open(struct backend *k, const char *storage, struct err *e)
{
	const struct low_precision_type *type = k->element == sizeof(float)
							? find_type(find_types(k->isa), storage)
							: NULL;
	if (!type)
		return err_set(e, ERR_USAGE,
			       "backend %s:%s: this backend has no such storage type; use bf16 "
			       "or fp16 with cpu or reference",
			       k->ops.name, storage);
	struct low_precision *n = calloc(1, sizeof *n);
	struct backend *lanes = calloc((size_t)k->threads, sizeof *lanes);
	float *arena = backend_alloc(k, (size_t)k->threads * BACKEND_LOW_PRECISION_LANE);
	if (!n || !lanes || !arena) {
		free(n);
		free(lanes);
		return err_set(e, ERR_NOMEM,
			       "backend %s:%s: no memory for %d lanes of %d MiB; use fewer threads",
			       k->ops.name, storage, k->threads, BACKEND_LOW_PRECISION_LANE >> 20);
	}
	init_lanes(k, lanes);
	*n = (struct low_precision){ .type = type, .fp32 = k->ops, .arena = arena, .lanes = lanes };
	snprintf(n->name, sizeof n->name, "%s:%s", k->ops.name, storage);
	k->low_precision = n;
	k->element = sizeof(uint16_t);
	fill_table(&k->ops, &n->fp32, n->name);
	return 0;
}

void low_precision_close(struct backend *k)
{
	if (!k->low_precision)
		return;
	free(k->low_precision->lanes);
	free(k->low_precision);
}
