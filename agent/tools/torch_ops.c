#include "agent/tools/torch_ops.h"

#include "base/json_member.h"
#include "libcomm/flight/diagnose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum side { INPUT, OUTPUT, NO_SIDE };

/* PyTorch's names. side: the tensors whose size all ranks must agree on; of an operation with uneven
 * sizes the kind is all_to_all, whose sizes may differ. A name that is not here counts as a
 * barrier. */
static const struct torch_kind {
	const char *name;
	enum op_kind kind;
	enum side side;
} kinds[] = {
	{ "all_reduce", OP_ALL_REDUCE, INPUT },
	{ "allreduce_coalesced", OP_ALL_REDUCE, INPUT },
	{ "reduce", OP_REDUCE, INPUT },
	{ "_reduce_oop", OP_REDUCE, INPUT },
	{ "broadcast", OP_BROADCAST, INPUT },
	{ "_broadcast_oop", OP_BROADCAST, OUTPUT },
	{ "all_gather", OP_ALL_GATHER, INPUT },
	{ "all_gather_single", OP_ALL_GATHER, INPUT },
	{ "_all_gather_base", OP_ALL_GATHER, INPUT },
	{ "all_gather_into_tensor_coalesced", OP_ALL_GATHER, INPUT },
	{ "ALLGATHER_coalesced", OP_ALL_GATHER, INPUT },
	{ "all_gather_v", OP_ALL_TO_ALL, INPUT },
	{ "reduce_scatter", OP_REDUCE_SCATTER, OUTPUT },
	{ "reduce_scatter_single", OP_REDUCE_SCATTER, OUTPUT },
	{ "_reduce_scatter_base", OP_REDUCE_SCATTER, OUTPUT },
	{ "reduce_scatter_tensor_coalesced", OP_REDUCE_SCATTER, OUTPUT },
	{ "REDUCE_SCATTER_coalesced", OP_REDUCE_SCATTER, OUTPUT },
	{ "reduce_scatter_v", OP_ALL_TO_ALL, OUTPUT },
	{ "all_to_all", OP_ALL_TO_ALL, INPUT },
	{ "all_to_all_single", OP_ALL_TO_ALL, INPUT },
	{ "all_to_all_v_single", OP_ALL_TO_ALL, INPUT },
	{ "gather", OP_GATHER, INPUT },
	{ "scatter", OP_SCATTER, OUTPUT },
	{ "barrier", OP_BARRIER, NO_SIDE },
	{ "all_reduce_barrier", OP_BARRIER, NO_SIDE },
	{ "send", OP_P2P, INPUT },
	{ "recv", OP_P2P, INPUT },
};

/* Bytes of one element; the others have 1. */
static const struct {
	const char *name;
	enum comm_type type;
	int bytes;
} types[] = {
	{ "Float", COMM_F32, 4 },
	{ "Double", COMM_F64, 8 },
	{ "BFloat16", COMM_BF16, 2 },
	{ "Half", COMM_F16, 2 },
	{ "Int", COMM_I32, 4 },
	{ "Long", COMM_I64, 8 },
	{ "Short", COMM_F16, 2 },
	{ "ComplexFloat", COMM_F32, 8 },
	{ "UInt64", COMM_I64, 8 },
	{ "UInt32", COMM_I32, 4 },
	{ "ComplexDouble", COMM_F64, 16 },
	{ "UInt16", COMM_F16, 2 },
};

/* "all_reduce" of "nccl:all_reduce", "send" of "nccl:send 0->1". The name of a backend may have a
 * colon, that of an operation has none. */
static void operation_name(const json_t *entry, char out[TRACE_OP_NAME])
{
	const char *text = json_string_value(json_object_get(entry, "profiling_name"));
	const char *colon = text ? strrchr(text, ':') : NULL;
	const char *at = colon ? colon + 1 : text ? text : "";
	snprintf(out, TRACE_OP_NAME, "%.*s", (int)strcspn(at, " "), at);
}

static const struct torch_kind *find_kind(const json_t *entry, const char *name, bool messages)
{
	static const struct torch_kind other = { "", OP_BARRIER, NO_SIDE },
				       several_messages = { "", OP_P2P, NO_SIDE },
				       several = { "", OP_ALL_REDUCE, NO_SIDE };
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(kinds[i].name, name))
			return &kinds[i];
	if (!tool_torch_is_coalesced(entry))
		return &other;
	return messages ? &several_messages : &several;
}

bool tool_torch_is_coalesced(const json_t *entry)
{
	char name[TRACE_OP_NAME];
	operation_name(entry, name);
	return !strcmp(name, "coalesced");
}

/* --- Sizes --- */

static enum comm_type type_of(const char *name, int *bytes)
{
	*bytes = 1;
	for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
		if (!strcmp(types[i].name, name)) {
			*bytes = types[i].bytes;
			return types[i].type;
		}
	return COMM_U8;
}

/* Adds the bytes of one tensor. */
static int add_tensor(const json_t *sizes, int element, int64_t *bytes, struct err *e)
{
	int64_t n = element;
	size_t i;
	json_t *size;
	json_array_foreach(sizes, i, size)
	{
		int64_t by = json_integer_value(size);
		if (by < 0 || __builtin_mul_overflow(n, by, &n))
			return err_set(e, ERR_CORRUPT, "a tensor has an impossible size");
	}
	return __builtin_add_overflow(*bytes, n, bytes)
		       ? err_set(e, ERR_CORRUPT, "its tensors have an impossible size")
		       : 0;
}

static int add_tensors(const json_t *entry, enum side side, enum comm_type *type, int64_t *bytes,
		       struct err *e)
{
	static const char *const sizes_key[] = { "input_sizes", "output_sizes" },
				 *const types_key[] = { "input_dtypes", "output_dtypes" };
	const json_t *sizes = json_object_get(entry, sizes_key[side]),
		     *names = json_object_get(entry, types_key[side]);
	size_t i;
	json_t *tensor;
	json_array_foreach(sizes, i, tensor)
	{
		int element;
		*type = type_of(json_string_value(json_array_get(names, i)), &element);
		if (add_tensor(tensor, element, bytes, e))
			return -1;
	}
	return 0;
}

/* --- An operation --- */

/* A retired entry is one that PyTorch no longer waits for. Gloo retires what has ended, and has no
 * other sign of it; NCCL's watchdog retires what has completed or timed out. */
static const char *state_of(const json_t *entry)
{
	const char *state = json_string_value(json_object_get(entry, "state"));
	const char *name = json_string_value(json_object_get(entry, "profiling_name"));
	if (state && !strcmp(state, "completed"))
		return "done";
	if (!json_is_true(json_object_get(entry, "retired")))
		return "running";
	return name && !strncmp(name, "gloo:", 5) ? "done" : "failed";
}

/* Microseconds of a time in nanoseconds; 0: unknown. */
static int64_t time_of(const json_t *entry, const char *key)
{
	int64_t ns = json_integer_value(json_object_get(entry, key));
	return ns > 0 ? ns / 1000 : 0;
}

static int set_times(json_t *op, const json_t *entry)
{
	int64_t start = time_of(entry, "time_created_ns"),
		end = time_of(entry, "time_discovered_completed_ns");
	return (start && json_object_set_new(op, "start_us", json_integer(start))) ||
			       (end && json_object_set_new(op, "end_us", json_integer(end)))
		       ? -1
		       : 0;
}

/* PyTorch records neither the reduction nor the root, so all have the same. */
static json_t *make_op(const json_t *entry, const struct torch_kind *kind, const char *name,
		       int64_t record, int64_t seq, struct err *e)
{
	enum comm_type type = COMM_U8;
	int64_t bytes = 0;
	if (kind->side != NO_SIDE && add_tensors(entry, kind->side, &type, &bytes, e))
		return NULL;
	json_t *op = json_pack("{s:I, s:s, s:s, s:I, s:s, s:s, s:i, s:I}", "number",
			       (json_int_t)record + 1, "op", comm_op_word(kind->kind), "state",
			       state_of(entry), "seq", (json_int_t)seq, "type",
			       comm_op_type_word(type), "redop", comm_op_redop_word(COMM_SUM),
			       "root", 0, "bytes", (json_int_t)bytes);
	bool named = kind->kind != OP_P2P && strcmp(comm_op_word(kind->kind), name) &&
		     strcmp(name, "all_reduce_barrier");
	bool failed = !op || set_times(op, entry) ||
		      (named && json_object_set_new(op, "name", json_string(name)));
	if (!failed)
		return op;
	err_set(e, ERR_NOMEM, "no memory for it, or its name is not UTF-8");
	json_decref(op);
	return NULL;
}

json_t *tool_torch_op(const json_t *entry, bool messages, struct err *e)
{
	char name[TRACE_OP_NAME];
	operation_name(entry, name);
	const struct torch_kind *kind = find_kind(entry, name, messages);
	const char *key = kind->kind == OP_P2P ? "p2p_seq_id" : "collective_seq_id";
	int64_t record, seq;
	if (json_member_int64(entry, "record_id", 0, INT64_MAX - 1, &record, e) ||
	    json_member_int64(entry, key, 0, UINT32_MAX, &seq, e))
		return NULL;
	if (!seq && kind->kind == OP_P2P) /* PyTorch does not count coalesced messages */
		seq = 1;
	return seq ? make_op(entry, kind, name, record, seq, e) : NULL;
}

bool tool_torch_peer(const json_t *entry, int ranks, bool *send, int *peer)
{
	const char *text = json_string_value(json_object_get(entry, "profiling_name"));
	const char *to = text ? strstr(text, "->") : NULL, *from = text ? strstr(text, "<-") : NULL;
	const char *at = to ? to + 2 : from ? from + 2 : "?";
	char *end;
	long rank = strtol(at, &end, 10);
	if (end == at || *end || rank < 0 || rank >= ranks)
		return false;
	*send = to != NULL;
	*peer = (int)rank;
	return true;
}
