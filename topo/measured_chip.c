#include "topo/measured_chip.h"

#include "topo/gpus.h"

#include <math.h>
#include <string.h>

static const char *const storage_words[] = { "fp32", "bf16", "fp16", "fp8" };

/* Memory that differs by more than a tenth is another chip's. */
enum { MEMORY_APART = 10 };

const char *topo_measured_storage_word(enum measured_storage storage)
{
	return storage_words[storage];
}

int topo_measured_chip_sizes(enum rate_class class)
{
	return class <= RATE_ATTENTION_BWD ? 3 : 1;
}

double topo_measured_chip_work(const struct measured_chip_op *op)
{
	if (op->class <= RATE_PRODUCT_WEIGHT)
		return 2 * op->size[0] * op->size[1] * op->size[2];
	return op->class <= RATE_ATTENTION_BWD ? op->size[2] : op->size[0];
}

bool topo_measured_chip_is_of(const struct measured_chip *chip, const struct node_kind *k)
{
	const struct gpu_model *m = topo_gpu_of_driver_name(chip->name);
	if (strcmp(m ? m->name : chip->name, k->device))
		return false;
	return !(k->device_memory > 0) ||
	       fabs(chip->memory - k->device_memory) * MEMORY_APART <= k->device_memory;
}
