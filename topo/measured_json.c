/* measured_json: writes and reads the calibration file. */
#include "topo/measured.h"

#include <math.h>
#include <string.h>

static const char *const op_words[] = {
	[MEASURED_ALL_REDUCE] = "all_reduce",
	[MEASURED_ALL_GATHER] = "all_gather",
	[MEASURED_REDUCE_SCATTER] = "reduce_scatter",
	[MEASURED_ALL_TO_ALL] = "all_to_all",
	[MEASURED_MESSAGE] = "message",
	[MEASURED_MEETING] = "meeting",
};
static const char *const transport_words[] = { [MEASURED_SHM] = "shm", [MEASURED_TCP] = "tcp" };
static const char *const storage_words[] = { "fp32", "bf16" };

const char *topo_measured_transport_word(enum measured_transport transport)
{
	return transport_words[transport];
}

const char *topo_measured_op_word(enum measured_op op)
{
	return op_words[op];
}

/* --- Write --- */

static json_t *points_json(int n, const double *x, const double *y)
{
	json_t *list = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_pack("[f, f]", x[i], y[i]));
	return list;
}

static json_t *machine_json(const struct measured_machine *m)
{
	json_t *rates = json_object();
	for (int i = 0; i < RATE_CLASSES; i++) {
		const struct rate_curve *c = &m->machine.rates[i];
		if (c->n)
			json_object_set_new(rates, topo_rate_class_word((enum rate_class)i),
					    points_json(c->n, c->x, c->rate));
	}
	return json_pack("{s:i, s:i, s:s, s:f, s:[f, f, f], s:o}", "agents", m->agents, "threads",
			 m->threads, "storage", storage_words[m->low_precision], "op_s",
			 m->machine.op, "packing", m->machine.packing[0], m->machine.packing[1],
			 m->machine.packing[2], "rates", rates);
}

json_t *topo_measured_machines_json(const struct measured *m)
{
	json_t *list = json_array();
	for (int i = 0; i < m->n_machines; i++)
		json_array_append_new(list, machine_json(&m->machines[i]));
	return list;
}

json_t *topo_measured_exchanges_json(const struct measured *m)
{
	json_t *list = json_array();
	for (int i = 0; i < m->n_exchanges; i++) {
		const struct measured_exchange *x = &m->exchanges[i];
		json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:i, s:o}", "transport",
						      transport_words[x->transport], "op",
						      op_words[x->op], "group", x->group, "crowd",
						      x->crowd, "seconds",
						      points_json(x->n, x->bytes, x->seconds)));
	}
	return list;
}

/* --- Read --- */

static int refuse_damage(const char *name, const char *what, struct err *e)
{
	return err_set(e, ERR_USAGE, "%s: %s; write it again with muster bench calibrate", name,
		       what);
}

static int index_of(const char *word, const char *const *words, int n)
{
	int i = 0;
	while (i < n && strcmp(words[i], word))
		i++;
	return i < n ? i : -1;
}

/* Reads pairs [x, y] whose x ascend and whose y are in [least, most]. Returns their number, or -1
 * if the list is not of that form. */
static int read_points(json_t *list, double least, double most, double *x, double *y)
{
	size_t n = json_array_size(list);
	if (n < 1 || n > RATE_POINTS)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (json_unpack(json_array_get(list, i), "[F, F!]", &x[i], &y[i]) ||
		    !(x[i] >= 1 && x[i] <= 1e18) || (i && !(x[i] > x[i - 1])) ||
		    !(y[i] >= least && y[i] <= most))
			return -1;
	}
	return (int)n;
}

static int read_rates(json_t *rates, struct machine_rates *m)
{
	const char *word;
	json_t *list;
	int known = 0;
	json_object_foreach(rates, word, list)
	{
		int class = 0;
		while (class < RATE_CLASSES &&
		       strcmp(word, topo_rate_class_word((enum rate_class) class)))
			class ++;
		if (class == RATE_CLASSES)
			return -1;
		struct rate_curve *c = &m->rates[class];
		c->n = read_points(list, 1, 1e21, c->x, c->rate);
		if (c->n < 1)
			return -1;
		known++;
	}
	/* The other rates fall back on these two. */
	return known && m->rates[RATE_PRODUCT_FWD].n && m->rates[RATE_MOVED].n ? 0 : -1;
}

static bool in_range(const struct measured_machine *x)
{
	bool good = x->agents >= 1 && x->agents <= MEASURED_AGENTS && x->threads >= 1 &&
		    x->threads <= MEASURED_AGENTS && x->machine.op >= 0 && x->machine.op <= 1;
	for (int i = 0; i <= RATE_PRODUCT_WEIGHT; i++)
		good &= x->machine.packing[i] >= 0 && x->machine.packing[i] <= 1e18;
	return good;
}

static int read_machine(json_t *o, const char *name, struct measured *m, struct err *e)
{
	struct measured_machine x = { 0 };
	const char *storage;
	json_t *rates;
	double *packing = x.machine.packing;
	if (json_unpack(o, "{s:i, s:i, s:s, s:F, s:[F, F, F!], s:o !}", "agents", &x.agents,
			"threads", &x.threads, "storage", &storage, "op_s", &x.machine.op,
			"packing", &packing[0], &packing[1], &packing[2], "rates", &rates) ||
	    !json_is_object(rates))
		return refuse_damage(
			name, "an entry of \"machines\" lacks a field or has an unknown one", e);
	int storage_type = index_of(storage, storage_words, 2);
	x.low_precision = storage_type > 0;
	if (storage_type < 0 || !in_range(&x) || read_rates(rates, &x.machine))
		return refuse_damage(name, "an entry of \"machines\" is out of range", e);
	int before = m->n_machines;
	topo_measured_add_machine(m, &x);
	return m->n_machines > before
		       ? 0
		       : refuse_damage(name, "\"machines\" has an entry twice, or too many", e);
}

static int read_exchange(json_t *o, const char *name, struct measured *m, struct err *e)
{
	struct measured_exchange x = { 0 };
	const char *transport, *op;
	json_t *seconds;
	if (json_unpack(o, "{s:s, s:s, s:i, s:i, s:o !}", "transport", &transport, "op", &op,
			"group", &x.group, "crowd", &x.crowd, "seconds", &seconds))
		return refuse_damage(
			name, "an entry of \"exchanges\" lacks a field or has an unknown one", e);
	int t = index_of(transport, transport_words, MEASURED_TRANSPORTS),
	    which = index_of(op, op_words, MEASURED_OPS);
	x.n = read_points(seconds, 1e-9, 1e4, x.bytes, x.seconds);
	if (t < 0 || which < 0 || x.n < 1 || x.group < 2 || x.crowd < x.group ||
	    x.crowd > MEASURED_AGENTS)
		return refuse_damage(name, "an entry of \"exchanges\" is out of range", e);
	x.transport = (enum measured_transport)t;
	x.op = (enum measured_op)which;
	int before = m->n_exchanges;
	topo_measured_add_exchange(m, &x);
	return m->n_exchanges > before
		       ? 0
		       : refuse_damage(name, "\"exchanges\" has an entry twice, or too many", e);
}

static int read_list(json_t *list,
		     int (*read)(json_t *, const char *, struct measured *, struct err *),
		     const char *name, struct measured *m, struct err *e)
{
	if (!json_is_array(list))
		return refuse_damage(name, "\"machines\" or \"exchanges\" is not a list", e);
	for (size_t i = 0; i < json_array_size(list); i++)
		if (read(json_array_get(list, i), name, m, e))
			return -1;
	return 0;
}

int topo_measured_read_machines(json_t *list, const char *name, struct measured *m, struct err *e)
{
	return read_list(list, read_machine, name, m, e);
}

int topo_measured_read_exchanges(json_t *list, const char *name, struct measured *m, struct err *e)
{
	return read_list(list, read_exchange, name, m, e);
}
