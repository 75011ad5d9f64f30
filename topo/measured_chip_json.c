/* measured_chip_json: writes and reads a chip of the calibration file. */
#include "topo/measured_chip.h"

#include <string.h>

enum { DEVICES_MAX = 256 };

/* --- Write --- */

static json_t *op_json(const struct measured_chip_op *op)
{
	json_t *list = json_array();
	for (int i = 0; i < topo_measured_chip_sizes(op->class); i++)
		json_array_append_new(list, json_real(op->size[i]));
	json_array_append_new(list, json_real(op->seconds));
	return list;
}

/* Returns the member of an object, which is made if it is not there. */
static json_t *member(json_t *o, const char *word, json_t *(*make)(void))
{
	if (!json_object_get(o, word))
		json_object_set_new(o, word, make());
	return json_object_get(o, word);
}

static json_t *ops_json(const struct measured_chip *chip)
{
	json_t *all = json_object();
	for (int i = 0; i < chip->n_ops; i++) {
		const struct measured_chip_op *op = &chip->ops[i];
		json_t *storage = member(all, topo_measured_storage_word(op->storage), json_object);
		json_array_append_new(member(storage, topo_rate_class_word(op->class), json_array),
				      op_json(op));
	}
	return all;
}

static json_t *exchanges_json(const struct measured_chip *chip)
{
	json_t *list = json_array();
	for (int i = 0; i < chip->n_exchanges; i++) {
		const struct measured_exchange *x = &chip->exchanges[i];
		json_t *points = json_array();
		for (int p = 0; p < x->n; p++)
			json_array_append_new(points,
					      json_pack("[f, f]", x->bytes[p], x->seconds[p]));
		json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:o}", "transport",
						      chip->staged ? "staged" : "nccl", "op",
						      topo_measured_op_word(x->op), "group",
						      x->group, "seconds", points));
	}
	return list;
}

json_t *topo_measured_chip_json(const struct measured_chip *c)
{
	return json_pack("{s:s, s:i, s:i, s:f, s:i, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:o, s:o}",
			 "name", c->name, "units", c->units, "capability", c->capability, "memory",
			 c->memory, "devices", c->devices, "date", c->date, "driver", c->driver,
			 "cuda", c->cuda, "cublaslt", c->cublaslt, "nccl", c->nccl, "to_host",
			 c->to_host, "from_host", c->from_host, "ops", ops_json(c), "exchanges",
			 exchanges_json(c));
}

/* --- Read --- */

static int refuse(const char *name, const char *what, struct err *e)
{
	return err_set(e, ERR_USAGE,
		       "%s: %s of \"chips\" lacks a field, has an unknown one or is out of range; "
		       "write it again with muster bench calibrate",
		       name, what);
}

static bool in_range(double x, double least, double most)
{
	return x >= least && x <= most; /* false for NaN */
}

static bool is_same(const struct measured_chip_op *a, const struct measured_chip_op *b)
{
	return a->class == b->class && a->storage == b->storage &&
	       !memcmp(a->size, b->size, sizeof a->size);
}

static int read_op(json_t *row, enum measured_storage storage, enum rate_class class,
		   struct measured_chip *c)
{
	struct measured_chip_op op = { .class = class, .storage = storage };
	int sizes = topo_measured_chip_sizes(class);
	if (c->n_ops == CHIP_OPS || (int)json_array_size(row) != sizes + 1)
		return -1;
	for (int i = 0; i < sizes; i++) {
		op.size[i] = json_number_value(json_array_get(row, (size_t)i));
		if (!in_range(op.size[i], 1, 1e18))
			return -1;
	}
	op.seconds = json_number_value(json_array_get(row, (size_t)sizes));
	if (!in_range(op.seconds, 1e-9, 1e4) || !in_range(topo_measured_chip_work(&op), 1, 1e21))
		return -1;
	for (int i = 0; i < c->n_ops; i++)
		if (is_same(&c->ops[i], &op))
			return -1;
	c->ops[c->n_ops++] = op;
	return 0;
}

static int class_of(const char *word)
{
	int class = 0;
	while (class < RATE_CLASSES && strcmp(word, topo_rate_class_word((enum rate_class) class)))
		class ++;
	return class < RATE_CLASSES ? class : -1;
}

static int storage_of(const char *word)
{
	int i = 0;
	while (i < MEASURED_STORAGES &&
	       strcmp(word, topo_measured_storage_word((enum measured_storage)i)))
		i++;
	return i < MEASURED_STORAGES ? i : -1;
}

static int read_storage(json_t *classes, int storage, struct measured_chip *c)
{
	const char *word;
	json_t *rows;
	if (storage < 0 || !json_is_object(classes))
		return -1;
	json_object_foreach(classes, word, rows)
	{
		int class = class_of(word);
		if (class < 0 || !json_is_array(rows) ||
		    (storage == MEASURED_FP8 && class > RATE_PRODUCT_WEIGHT))
			return -1;
		for (size_t i = 0; i < json_array_size(rows); i++)
			if (read_op(json_array_get(rows, i), (enum measured_storage)storage,
				    (enum rate_class) class, c))
				return -1;
	}
	return 0;
}

static int read_points(json_t *list, struct measured_exchange *x)
{
	size_t n = json_array_size(list);
	if (n < 1 || n > RATE_POINTS)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (json_unpack(json_array_get(list, i), "[F, F!]", &x->bytes[i], &x->seconds[i]) ||
		    !in_range(x->bytes[i], 1, 1e18) || (i && !(x->bytes[i] > x->bytes[i - 1])) ||
		    !in_range(x->seconds[i], 1e-9, 1e4))
			return -1;
	x->n = (int)n;
	return 0;
}

/* Meetings of processes are not measured on a chip. */
static int op_of(const char *word)
{
	int i = 0;
	while (i <= MEASURED_MESSAGE && strcmp(topo_measured_op_word((enum measured_op)i), word))
		i++;
	return i <= MEASURED_MESSAGE ? i : -1;
}

/* All exchanges of a chip have the same transport. */
static int read_exchange(json_t *o, struct measured_chip *c)
{
	struct measured_exchange x = { 0 };
	const char *transport, *op;
	json_t *seconds;
	if (c->n_exchanges == CHIP_EXCHANGES ||
	    json_unpack(o, "{s:s, s:s, s:i, s:o !}", "transport", &transport, "op", &op, "group",
			&x.group, "seconds", &seconds))
		return -1;
	int which = op_of(op);
	bool staged = !strcmp(transport, "staged");
	if (which < 0 || (!staged && strcmp(transport, "nccl")) || x.group < 2 ||
	    x.group > c->devices || read_points(seconds, &x) ||
	    (c->n_exchanges && staged != c->staged))
		return -1;
	x.op = (enum measured_op)which;
	c->staged = staged;
	for (int i = 0; i < c->n_exchanges; i++)
		if (c->exchanges[i].op == x.op && c->exchanges[i].group == x.group)
			return -1;
	c->exchanges[c->n_exchanges++] = x;
	return 0;
}

/* The text is shown to people, so control characters are refused. */
static bool take_text(char *out, size_t size, const char *text)
{
	size_t n = strlen(text);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 127)
			return false;
	if (!n || n >= size)
		return false;
	memcpy(out, text, n + 1);
	return true;
}

static bool identity_in_range(const struct measured_chip *c)
{
	return in_range(c->units, 1, 65536) && in_range(c->capability, 10, 1000) &&
	       in_range(c->memory, 1, 1e18) && in_range(c->devices, 1, DEVICES_MAX) &&
	       in_range(c->driver, 0, 1e9) && in_range(c->cuda, 0, 1e9) &&
	       in_range(c->cublaslt, 0, 1e9) && in_range(c->nccl, 0, 1e9) &&
	       in_range(c->to_host, 0, 1e18) && in_range(c->from_host, 0, 1e18);
}

int topo_measured_read_chip(json_t *o, const char *name, struct measured_chip *c, struct err *e)
{
	const char *chip, *date, *word;
	json_t *ops, *exchanges, *classes;
	memset(c, 0, sizeof *c);
	if (json_unpack(
		    o, "{s:s, s:i, s:i, s:F, s:i, s:s, s:i, s:i, s:i, s:i, s:F, s:F, s:o, s:o !}",
		    "name", &chip, "units", &c->units, "capability", &c->capability, "memory",
		    &c->memory, "devices", &c->devices, "date", &date, "driver", &c->driver, "cuda",
		    &c->cuda, "cublaslt", &c->cublaslt, "nccl", &c->nccl, "to_host", &c->to_host,
		    "from_host", &c->from_host, "ops", &ops, "exchanges", &exchanges) ||
	    !take_text(c->name, sizeof c->name, chip) ||
	    !take_text(c->date, sizeof c->date, date) || !identity_in_range(c) ||
	    !json_is_object(ops) || !json_is_array(exchanges))
		return refuse(name, "an entry", e);
	json_object_foreach(ops, word, classes)
	{
		int storage = storage_of(word);
		if (read_storage(classes, storage, c))
			return refuse(name, "an operation", e);
	}
	for (size_t i = 0; i < json_array_size(exchanges); i++)
		if (read_exchange(json_array_get(exchanges, i), c))
			return refuse(name, "an exchange", e);
	return c->n_ops ? 0 : refuse(name, "an entry", e);
}
