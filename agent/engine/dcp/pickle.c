#include "agent/engine/dcp/machine.h"

#include <stdlib.h>
#include <string.h>

/* --- opcodes: `arg` is of the table below --- */

static int op_proto(struct dcp_machine *m, int arg)
{
	uint64_t version;
	(void)arg;
	if (!dcp_machine_read_number(m, 1, &version))
		return -1;
	return version < 2 || version > 5 ? dcp_machine_fail(m, "its protocol is not 2 to 5") : 0;
}

/* A frame only says how much to read at once. */
static int op_frame(struct dcp_machine *m, int arg)
{
	uint64_t n;
	if (!dcp_machine_read_number(m, arg, &n))
		return -1;
	return n > (uint64_t)(m->end - m->at) ? dcp_machine_fail(m, "it ends early") : 0;
}

static int op_stop(struct dcp_machine *m, int arg)
{
	(void)arg;
	if (m->depth || m->n != 1)
		return dcp_machine_fail(m, "it ends with values left over");
	m->stopped = true;
	return 0;
}

static int op_constant(struct dcp_machine *m, int arg)
{
	struct dcp_value *v = dcp_machine_make(m, arg < 0 ? DCP_NONE : DCP_BOOL);
	if (v && arg >= 0)
		v->truth = arg;
	return dcp_machine_push(m, v);
}

static int op_empty(struct dcp_machine *m, int arg)
{
	return dcp_machine_push(m, dcp_machine_make(m, (enum dcp_kind)arg));
}

static int push_int(struct dcp_machine *m, int64_t number)
{
	struct dcp_value *v = dcp_machine_make(m, DCP_INT);
	if (v)
		v->number = number;
	return dcp_machine_push(m, v);
}

static int op_int(struct dcp_machine *m, int arg)
{
	uint64_t u;
	if (!dcp_machine_read_number(m, arg, &u))
		return -1;
	return push_int(m, arg == 4 ? (int32_t)(uint32_t)u : (int64_t)u);
}

/* A two's complement number of any length; only 64 bits make sense here. */
static int op_long(struct dcp_machine *m, int arg)
{
	uint64_t width, u = 0;
	(void)arg;
	if (!dcp_machine_read_number(m, 1, &width))
		return -1;
	if (width > 8)
		return dcp_machine_fail(m, "a number has more than 64 bits");
	if (!dcp_machine_read_number(m, (int)width, &u))
		return -1;
	if (width > 0 && width < 8 && u >> (8 * width - 1))
		u |= UINT64_MAX << 8 * width;
	return push_int(m, (int64_t)u);
}

static int op_float(struct dcp_machine *m, int arg)
{
	const uint8_t *b;
	uint64_t bits = 0;
	(void)arg;
	if (!dcp_machine_read(m, 8, &b))
		return -1;
	for (int i = 0; i < 8; i++)
		bits = bits << 8 | b[i];
	struct dcp_value *v = dcp_machine_make(m, DCP_FLOAT);
	if (v)
		memcpy(&v->real, &bits, sizeof bits);
	return dcp_machine_push(m, v);
}

static int push_text(struct dcp_machine *m, enum dcp_kind kind, int width)
{
	uint64_t n;
	const uint8_t *b;
	if (!dcp_machine_read_number(m, width, &n) || !dcp_machine_read(m, n, &b))
		return -1;
	struct dcp_value *v = dcp_machine_make(m, kind);
	if (v) {
		v->text = (const char *)b;
		v->length = n;
	}
	return dcp_machine_push(m, v);
}

static int op_text(struct dcp_machine *m, int arg)
{
	return push_text(m, DCP_TEXT, arg);
}

static int op_bytes(struct dcp_machine *m, int arg)
{
	return push_text(m, DCP_BYTES, arg);
}

static int op_mark(struct dcp_machine *m, int arg)
{
	(void)arg;
	if (m->depth == DCP_PICKLE_DEPTH_MAX)
		return dcp_machine_fail(m, "its values are nested too deeply");
	m->marks[m->depth++] = m->n;
	return 0;
}

static int push_tuple(struct dcp_machine *m, int64_t from, int64_t n)
{
	struct dcp_value *v = dcp_machine_make(m, DCP_TUPLE);
	if (!v)
		return -1;
	if (n) {
		v->items = dcp_arena_take(m->arena, (size_t)n * sizeof *v->items);
		if (!v->items)
			return dcp_machine_fail_memory(m);
		memcpy(v->items, m->stack + from, (size_t)n * sizeof *v->items);
	}
	v->n = v->room = n;
	return dcp_machine_push(m, v);
}

static int op_tuple(struct dcp_machine *m, int arg)
{
	int64_t from = 0, n = 0;
	(void)arg;
	return dcp_machine_take_mark(m, &from, &n) || push_tuple(m, from, n) ? -1 : 0;
}

static int op_small_tuple(struct dcp_machine *m, int arg)
{
	if (m->n - dcp_machine_floor(m) < arg)
		return dcp_machine_fail(m, "its stack is empty");
	m->n -= arg;
	return push_tuple(m, m->n, arg);
}

static int op_append(struct dcp_machine *m, int arg)
{
	(void)arg;
	struct dcp_value *item = dcp_machine_pop(m), *list = item ? dcp_machine_top(m) : NULL;
	if (!list)
		return -1;
	return list->kind == DCP_LIST ? dcp_machine_add_item(m, list, item)
				      : dcp_machine_fail(m, "it appends to what is not a list");
}

/* APPENDS, ADDITEMS, SETITEMS: `arg` is the kind that takes the items. */
static int op_items(struct dcp_machine *m, int arg)
{
	int64_t from = 0, n = 0;
	if (dcp_machine_take_mark(m, &from, &n))
		return -1;
	struct dcp_value *to = dcp_machine_top(m);
	if (!to)
		return -1;
	if ((int)to->kind != arg || (arg == DCP_DICT && n % 2))
		return dcp_machine_fail(m, "it adds items to what cannot hold them");
	for (int64_t i = 0; i < n; i++)
		if (dcp_machine_add_item(m, to, m->stack[from + i]))
			return -1;
	return 0;
}

static int op_set_item(struct dcp_machine *m, int arg)
{
	(void)arg;
	struct dcp_value *value = dcp_machine_pop(m), *key = value ? dcp_machine_pop(m) : NULL,
			 *to = key ? dcp_machine_top(m) : NULL;
	if (!to)
		return -1;
	if (to->kind != DCP_DICT)
		return dcp_machine_fail(m, "it adds items to what cannot hold them");
	return dcp_machine_add_item(m, to, key) || dcp_machine_add_item(m, to, value) ? -1 : 0;
}

/* --- memo --- */

static int remember(struct dcp_machine *m, uint64_t i)
{
	struct dcp_value *v = dcp_machine_top(m);
	if (!v)
		return -1;
	if (i > (uint64_t)m->n_memo)
		return dcp_machine_fail(m, "a memo index is out of order");
	if ((int64_t)i == m->n_memo) {
		if (m->n_memo == m->memo_room &&
		    dcp_machine_grow(m, &m->memo, &m->memo_room, m->n_memo + 1))
			return -1;
		m->n_memo++;
	}
	m->memo[i] = v;
	return 0;
}

static int op_memoize(struct dcp_machine *m, int arg)
{
	(void)arg;
	return remember(m, (uint64_t)m->n_memo);
}

static int op_put(struct dcp_machine *m, int arg)
{
	uint64_t i;
	return dcp_machine_read_number(m, arg, &i) ? remember(m, i) : -1;
}

static int op_get(struct dcp_machine *m, int arg)
{
	uint64_t i;
	if (!dcp_machine_read_number(m, arg, &i))
		return -1;
	return i < (uint64_t)m->n_memo ? dcp_machine_push(m, m->memo[i])
				       : dcp_machine_fail(m, "a memo index does not exist");
}

/* --- names and objects --- */

static int push_global(struct dcp_machine *m, const char *module, size_t a, const char *name,
		       size_t b)
{
	const struct dcp_global *g = dcp_pickle_global(module, a, name, b);
	if (!g)
		return err_set(m->e, ERR_UNSUPPORTED,
			       "%s: its pickle names %.*s.%.*s, which no tensor needs; nothing of "
			       "it was run (byte %td); %s",
			       m->name, a < 200 ? (int)a : 200, module, b < 100 ? (int)b : 100,
			       name, m->at - m->start, m->remedy);
	struct dcp_value *v = dcp_machine_make(m, DCP_GLOBAL);
	if (v)
		v->global = g;
	return dcp_machine_push(m, v);
}

static bool read_line(struct dcp_machine *m, const char **out, size_t *n)
{
	const uint8_t *end = memchr(m->at, '\n', (size_t)(m->end - m->at));
	if (!end) {
		dcp_machine_fail(m, "it ends early");
		return false;
	}
	*out = (const char *)m->at;
	*n = (size_t)(end - m->at);
	m->at = end + 1;
	return true;
}

static int op_global(struct dcp_machine *m, int arg)
{
	const char *module, *name;
	size_t a, b;
	(void)arg;
	return read_line(m, &module, &a) && read_line(m, &name, &b)
		       ? push_global(m, module, a, name, b)
		       : -1;
}

static int op_stack_global(struct dcp_machine *m, int arg)
{
	(void)arg;
	struct dcp_value *name = dcp_machine_pop(m), *module = name ? dcp_machine_pop(m) : NULL;
	if (!module)
		return -1;
	if (name->kind != DCP_TEXT || module->kind != DCP_TEXT)
		return dcp_machine_fail(m, "a name is not a text");
	return push_global(m, module->text, module->length, name->text, name->length);
}

/* REDUCE and NEWOBJ. A mapping without entries is a dict, to which SETITEMS adds. */
static int op_call(struct dcp_machine *m, int arg)
{
	(void)arg;
	struct dcp_value *args = dcp_machine_pop(m), *of = args ? dcp_machine_pop(m) : NULL;
	if (!of)
		return -1;
	if (of->kind != DCP_GLOBAL || args->kind != DCP_TUPLE)
		return dcp_machine_fail(m, "it calls what is not a name");
	bool mapping = of->global->means == DCP_MEANS_MAPPING;
	if (mapping && (args->n > 1 || (args->n && args->items[0]->kind == DCP_LIST)))
		return dcp_machine_fail(m, "a mapping has arguments");
	struct dcp_value *v = dcp_machine_make(m, mapping ? DCP_DICT : DCP_OBJECT);
	if (v && !mapping) {
		v->of = of->global;
		v->args = args;
	}
	return dcp_machine_push(m, v);
}

static int op_build(struct dcp_machine *m, int arg)
{
	(void)arg;
	struct dcp_value *state = dcp_machine_pop(m), *v = state ? dcp_machine_top(m) : NULL;
	if (!v)
		return -1;
	if (v->kind != DCP_OBJECT || v->state)
		return dcp_machine_fail(m, "it sets a state where there can be none");
	v->state = state;
	return 0;
}

static int op_persistent(struct dcp_machine *m, int arg)
{
	(void)arg;
	struct dcp_value *id = dcp_machine_pop(m),
			 *v = id ? dcp_machine_make(m, DCP_PERSISTENT) : NULL;
	if (v)
		v->args = id;
	return dcp_machine_push(m, v);
}

static const struct opcode {
	int (*run)(struct dcp_machine *m, int arg);
	int arg;
} opcodes[256] = {
	[0x80] = { op_proto, 0 },        [0x95] = { op_frame, 8 },
	['.'] = { op_stop, 0 },          ['N'] = { op_constant, -1 },
	[0x88] = { op_constant, 1 },     [0x89] = { op_constant, 0 },
	['K'] = { op_int, 1 },           ['M'] = { op_int, 2 },
	['J'] = { op_int, 4 },           [0x8a] = { op_long, 0 },
	['G'] = { op_float, 0 },         [0x8c] = { op_text, 1 },
	['X'] = { op_text, 4 },          [0x8d] = { op_text, 8 },
	['C'] = { op_bytes, 1 },         ['B'] = { op_bytes, 4 },
	[0x8e] = { op_bytes, 8 },        ['('] = { op_mark, 0 },
	[')'] = { op_empty, DCP_TUPLE }, [']'] = { op_empty, DCP_LIST },
	['}'] = { op_empty, DCP_DICT },  [0x8f] = { op_empty, DCP_SET },
	['t'] = { op_tuple, 0 },         [0x85] = { op_small_tuple, 1 },
	[0x86] = { op_small_tuple, 2 },  [0x87] = { op_small_tuple, 3 },
	['a'] = { op_append, 0 },        ['e'] = { op_items, DCP_LIST },
	[0x90] = { op_items, DCP_SET },  ['u'] = { op_items, DCP_DICT },
	['s'] = { op_set_item, 0 },      [0x94] = { op_memoize, 0 },
	['q'] = { op_put, 1 },           ['r'] = { op_put, 4 },
	['h'] = { op_get, 1 },           ['j'] = { op_get, 4 },
	['c'] = { op_global, 0 },        [0x93] = { op_stack_global, 0 },
	['R'] = { op_call, 0 },          [0x81] = { op_call, 0 },
	['b'] = { op_build, 0 },         ['Q'] = { op_persistent, 0 },
};

static int step(struct dcp_machine *m)
{
	const uint8_t *code;
	if (!dcp_machine_read(m, 1, &code))
		return -1;
	const struct opcode *op = &opcodes[*code];
	if (!op->run)
		return err_set(m->e, ERR_UNSUPPORTED,
			       "%s: its pickle has opcode 0x%02x at byte %td, which muster does "
			       "not read; %s",
			       m->name, *code, code - m->start, m->remedy);
	return op->run(m, op->arg);
}

static int parse(const void *data, size_t n, const char *name, const char *remedy,
		 struct dcp_pickle *out, struct err *e)
{
	struct dcp_machine *m = calloc(1, sizeof *m);
	if (!m || !(m->arena = dcp_arena_open())) {
		free(m);
		return err_set(e, ERR_NOMEM, "%s: no memory for its values", name);
	}
	m->start = m->at = data;
	m->end = m->start + n;
	m->name = name;
	m->remedy = remedy;
	m->e = e;
	int rc = n > DCP_PICKLE_BYTES_MAX ? dcp_machine_fail(m, "it is too large") : 0;
	while (!rc && !m->stopped)
		rc = step(m);
	if (!rc && m->at != m->end)
		rc = dcp_machine_fail(m, "bytes follow its end");
	if (rc)
		dcp_arena_close(m->arena);
	else
		*out = (struct dcp_pickle){ m->stack[0], m->arena };
	free(m->memo);
	free(m->stack);
	free(m);
	return rc ? -1 : 0;
}

int dcp_pickle_parse(const void *data, size_t n, const char *name, struct dcp_pickle *out,
		     struct err *e)
{
	return parse(data, n, name,
		     "save the model's state dict alone, with torch.distributed.checkpoint.save",
		     out, e);
}

int dcp_pickle_parse_plain(const void *data, size_t n, const char *name, struct dcp_pickle *out,
			   struct err *e)
{
	return parse(data, n, name, "let PyTorch write the file again", out, e);
}

void dcp_pickle_free(struct dcp_pickle *p)
{
	dcp_arena_close(p->arena);
	*p = (struct dcp_pickle){ 0 };
}
