/* Puts a storage type over an fp32 backend that is already open. */
#include "kernels/low_precision/low_precision.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which conversions go with a variant of cpu; the rest has those without an instruction set. */
static const struct low_precision_type *types_of(const char *isa)
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

static const struct low_precision_type *type_find(const struct low_precision_type *types,
						  const char *name)
{
	for (int i = 0; i < LOW_PRECISION_TYPES; i++)
		if (!strcmp(types[i].name, name))
			return &types[i];
	return NULL;
}

static void lanes_fill(struct backend *k, struct backend *lanes)
{
	for (int i = 0; i < k->threads; i++)
		lanes[i] = (struct backend){ .ops = k->ops,
					     .threads = 1,
					     .element = sizeof(float),
					     .scratch = backend_scratch(k, i) };
}

/* What is fp32 in every storage is the backend's own. Everything else is entered by a family, so
 * that an op which none knows is missing, not wrong. */
static void table_fill(struct ops *o, const struct ops *wide, const char *name)
{
	*o = (struct ops){
		.name = name,
		.route_fwd = wide->route_fwd,
		.route_bwd = wide->route_bwd,
		.route_loss = wide->route_loss,
		.xent_loss = wide->xent_loss,
		.accumulate = wide->accumulate,
		.sqnorm = wide->sqnorm,
		.adamw = wide->adamw,
		.sgd = wide->sgd,
	};
	backend_composed(o);
	backend_places(o);
	backend_product8(o);
	low_precision_linear(o);
	low_precision_norm(o);
	low_precision_elements(o);
	low_precision_rows(o);
	low_precision_attention(o);
	low_precision_xent(o);
}

int low_precision_open(struct backend *k, const char *storage, struct err *e)
{
	const struct low_precision_type *type = k->element == sizeof(float)
							? type_find(types_of(k->isa), storage)
							: NULL;
	if (!type)
		return err_set(e, ERR_USAGE,
			       "backend %s:%s: no such storage type of this backend; use bf16 or "
			       "fp16 of cpu or plain",
			       k->ops.name, storage);
	struct narrow *n = calloc(1, sizeof *n);
	struct backend *lanes = calloc((size_t)k->threads, sizeof *lanes);
	float *arena = backend_alloc(k, (size_t)k->threads * BACKEND_NARROW_LANE);
	if (!n || !lanes || !arena) {
		free(n);
		free(lanes);
		return err_set(e, ERR_NOMEM,
			       "backend %s:%s: no memory for %d lanes of %d MiB; use fewer threads",
			       k->ops.name, storage, k->threads, BACKEND_NARROW_LANE >> 20);
	}
	lanes_fill(k, lanes);
	*n = (struct narrow){ .type = type, .wide = k->ops, .arena = arena, .lanes = lanes };
	snprintf(n->name, sizeof n->name, "%s:%s", k->ops.name, storage);
	k->narrow = n;
	k->element = sizeof(uint16_t);
	table_fill(&k->ops, &n->wide, n->name);
	return 0;
}

void low_precision_close(struct backend *k)
{
	if (!k->narrow)
		return;
	free(k->narrow->lanes);
	free(k->narrow);
}
