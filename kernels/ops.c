/* What ops_table.h generates: the list of ops, the check for missing ones, and the forms that
 * backends share. */
#include "kernels/backend.h"

const struct op_traits backend_op_traits[] = {
#define OP(op, operands, form, parameters) { #op, OP_##operands, OP_##form },
#include "kernels/ops_table.h"
	{ 0 },
};

const char *backend_missing_op(const struct ops *o)
{
	const char *missing = NULL;
#define OP(op, operands, form, parameters) missing = missing || o->op ? missing : #op;
#include "kernels/ops_table.h"
	return missing;
}

#define FILL_OWN(op)
#define FILL_HOST(op)     o->op = host && !o->op ? backend_host_##op : o->op;
#define FILL_COMPOSED(op) o->op = !o->op ? backend_composed_##op : o->op;

void backend_fill_shared(struct ops *o, bool host)
{
#define OP(op, operands, form, parameters) FILL_##form(op)
#include "kernels/ops_table.h"
}

#define COPY_STORED(op)
#define COPY_FP32(op) o->op = fp32->op;

void backend_fill_fp32(struct ops *o, const struct ops *fp32)
{
#define OP(op, operands, form, parameters) COPY_##operands(op)
#include "kernels/ops_table.h"
}
