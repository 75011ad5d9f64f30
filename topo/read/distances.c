#include "topo/read/hwloc.h"

#include "topo/read/assume.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MATRIX_MAX = 2 * MACHINE_DEVICES };

struct id {
	unsigned long long gp;
	enum hwloc_what what;
	int index;
};

struct hwloc_ids {
	const char *file;
	struct id *rows;
	int n, cap, switches;
};

struct hwloc_ids *topo_hwloc_ids_open(const char *file)
{
	struct hwloc_ids *ids = calloc(1, sizeof *ids);
	if (ids)
		ids->file = file;
	return ids;
}

void topo_hwloc_ids_close(struct hwloc_ids *ids)
{
	if (ids)
		free(ids->rows);
	free(ids);
}

int topo_hwloc_switch(struct hwloc_ids *ids)
{
	return ids->switches++;
}

int topo_hwloc_id(struct hwloc_ids *ids, const struct xml *x, enum hwloc_what what, int index,
		  struct err *e)
{
	const char *gp = topo_xml_get(x, "gp_index");
	if (!gp)
		return 0;
	if (ids->n == ids->cap) {
		int cap = ids->cap ? 2 * ids->cap : 64;
		struct id *rows = realloc(ids->rows, (size_t)cap * sizeof *rows);
		if (!rows)
			return err_set(e, ERR_NOMEM, "%s: no memory for its objects", ids->file);
		ids->rows = rows;
		ids->cap = cap;
	}
	ids->rows[ids->n++] = (struct id){ strtoull(gp, NULL, 10), what, index };
	return 0;
}

static int by_gp(const void *a, const void *b)
{
	const struct id *x = a, *y = b;
	return (x->gp > y->gp) - (x->gp < y->gp);
}

/* One matrix: the object of each row, and the values. */
struct matrix {
	const struct xml *at;
	int n;
	struct id *rows; /* index -1: neither a GPU nor a switch */
	double *values;  /* [n × n], bytes/s */
	enum link_kind kind;
};

static int refuse_distances(const struct hwloc_ids *ids, const struct xml *x, const char *why,
			    struct err *e)
{
	return err_set(e, ERR_USAGE, "%s:%d: matrix of distances: %s; export the file again",
		       ids->file, x->line, why);
}

/* The next blank-separated word of the elements `name`, from *x on; NULL: there is none. */
static const char *next_word(const struct xml **x, const char **at, const char *name)
{
	while (*x) {
		while (isspace((unsigned char)**at))
			(*at)++;
		if (**at)
			return *at;
		*x = topo_xml_child((*x)->next, name);
		*at = *x ? (*x)->text : "";
	}
	return NULL;
}

static void past_word(const char **at)
{
	while (**at && !isspace((unsigned char)**at))
		(*at)++;
}

static int read_rows(const struct hwloc_ids *ids, struct matrix *x, struct err *e)
{
	const struct xml *el = topo_xml_child(x->at->first, "indexes");
	const char *at = el ? el->text : "";
	for (int i = 0; i < x->n; i++) {
		const char *w = next_word(&el, &at, "indexes");
		if (!w)
			return refuse_distances(ids, x->at, "fewer objects than it announces", e);
		/* "OSDev:332", or only the number if all objects have one type */
		const char *colon = w + strcspn(w, ": \t\r\n");
		struct id key = { .gp = strtoull(*colon == ':' ? colon + 1 : w, NULL, 10) };
		const struct id *found = ids->n ? bsearch(&key, ids->rows, (size_t)ids->n,
							  sizeof *ids->rows, by_gp)
						: NULL;
		x->rows[i] = found ? *found : (struct id){ .index = -1 };
		past_word(&at);
	}
	return next_word(&el, &at, "indexes")
		       ? refuse_distances(ids, x->at, "more objects than it announces", e)
		       : 0;
}

static int read_values(const struct hwloc_ids *ids, struct matrix *x, struct err *e)
{
	const struct xml *el = topo_xml_child(x->at->first, "u64values");
	const char *at = el ? el->text : "";
	for (long i = 0; i < (long)x->n * x->n; i++) {
		const char *w = next_word(&el, &at, "u64values");
		char *end;
		if (!w)
			return refuse_distances(ids, x->at, "fewer values than objects squared", e);
		errno = 0;
		double v = (double)strtoull(w, &end, 10);
		if (end == w || errno || !isdigit((unsigned char)*w) ||
		    (*end && !isspace((unsigned char)*end)))
			return refuse_distances(ids, x->at, "a value that is not a number", e);
		x->values[i] = v * 1e6;
		past_word(&at);
	}
	return next_word(&el, &at, "u64values")
		       ? refuse_distances(ids, x->at, "more values than objects squared", e)
		       : 0;
}

static int root_of(int *up, int i)
{
	while (up[i] != i)
		i = up[i] = up[up[i]];
	return i;
}

static int lanes_in(const struct found_gpu *g, double bandwidth)
{
	double lane = g->model && g->model->lane > 0 ? g->model->lane : NVLINK_LANE;
	double n = round(bandwidth / lane);
	return n < 1 ? 1 : n > 1000 ? 1000 : (int)n;
}

/* hwloc before 2.10 counts NVLinks of generations 3 and 4 twice (open-mpi/hwloc#574). This is the
 * case if a GPU has more than 1.5 times the bandwidth of its model. */
static void halve_what_is_counted_twice(struct matrix *x, const struct found_node *m)
{
	bool twice = false;
	for (int i = 0; i < x->n; i++) {
		const struct gpu_model *model = x->rows[i].index >= 0 &&
								x->rows[i].what == HWLOC_GPU
							? m->gpus[x->rows[i].index].model
							: NULL;
		double sum = 0;
		for (int j = 0; model && j < x->n; j++)
			if (i != j && x->rows[j].index >= 0)
				sum += x->values[(long)i * x->n + j];
		twice = twice || (model && model->lanes && sum > 1.5 * model->lanes * model->lane);
	}
	for (long i = 0; twice && i < (long)x->n * x->n; i++)
		x->values[i] /= 2;
}

/* Takes each GPU's links to switches, and the switches that are joined. Files rarely contain links
 * between switches, so fabrics that are separate in the file count as one, as in every machine with
 * two switch boards. */
static void take_ports(const struct matrix *x, struct found_node *m, int *up)
{
	int fabric = -1;
	for (int i = 0; i < x->n; i++)
		up[i] = i;
	for (int i = 0; i < x->n; i++)
		for (int j = 0; j < x->n; j++) {
			const struct id *a = &x->rows[i], *b = &x->rows[j];
			if (i == j || x->values[(long)i * x->n + j] <= 0 || a->index < 0 ||
			    b->index < 0 || b->what != HWLOC_SWITCH)
				continue;
			up[root_of(up, i)] = root_of(up, j);
			if (a->what == HWLOC_GPU)
				m->gpus[a->index].port += x->values[(long)i * x->n + j];
		}
	for (int i = 0; i < x->n; i++)
		if (x->rows[i].index >= 0 && x->rows[i].what == HWLOC_GPU &&
		    m->gpus[x->rows[i].index].port > 0) {
			struct found_gpu *g = &m->gpus[x->rows[i].index];
			g->port_lanes = lanes_in(g, g->port);
			if (fabric >= 0 && fabric != root_of(up, i))
				topo_found_add_unknown(m, "links between its NVSwitches: they are "
							  "taken to join all GPUs");
			fabric = root_of(up, i);
		}
}

static int take_pairs(const struct matrix *x, struct found_node *m, struct err *e)
{
	for (int i = 0; i < x->n; i++)
		for (int j = 0; j < x->n; j++) {
			const struct id *a = &x->rows[i], *b = &x->rows[j];
			double v = x->values[(long)i * x->n + j];
			if (i == j || v <= 0 || a->index < 0 || b->index < 0 ||
			    a->what != HWLOC_GPU || b->what != HWLOC_GPU || a->index == b->index)
				continue;
			const struct found_link l = { a->index, b->index, x->kind,
						      lanes_in(&m->gpus[a->index], v), v };
			if (topo_found_add_link(m, &l, e) < 0)
				return -1;
		}
	return 0;
}

static int take_matrix(const struct hwloc_ids *ids, const struct xml *at, enum link_kind kind,
		       struct found_node *m, struct err *e)
{
	const char *n = topo_xml_get(at, "nbobjs");
	struct matrix x = { .at = at, .n = n ? atoi(n) : 0, .kind = kind };
	if (x.n < 1 || x.n > MATRIX_MAX)
		return refuse_distances(ids, at,
					"it is of no objects or of more than a machine has", e);
	x.rows = calloc((size_t)x.n, sizeof *x.rows);
	x.values = calloc((size_t)x.n * (size_t)x.n, sizeof *x.values);
	int *up = calloc((size_t)x.n, sizeof *up);
	int result = -1;
	if (!x.rows || !x.values || !up)
		err_set(e, ERR_NOMEM, "%s: no memory for its matrices", ids->file);
	else if (!read_rows(ids, &x, e) && !read_values(ids, &x, e)) {
		halve_what_is_counted_twice(&x, m);
		take_ports(&x, m, up);
		result = take_pairs(&x, m, e);
	}
	free(x.rows);
	free(x.values);
	free(up);
	return result;
}

int topo_hwloc_links(struct hwloc_ids *ids, const struct xml *root, struct found_node *m,
		     struct err *e)
{
	static const struct {
		const char *name;
		enum link_kind kind;
	} names[] = { { "NVLinkBandwidth", LINK_NVLINK }, { "XGMIBandwidth", LINK_XGMI } };
	bool taken[2] = { false, false };
	if (ids->n)
		qsort(ids->rows, (size_t)ids->n, sizeof *ids->rows, by_gp);
	for (const struct xml *x = root->first; x; x = x->next) {
		const char *name = topo_xml_get(x, "name");
		if (!name || strncmp(x->name, "distances2", 10))
			continue;
		for (int i = 0; i < 2; i++)
			if (!strcmp(name, names[i].name) && !taken[i]) {
				if (take_matrix(ids, x, names[i].kind, m, e))
					return -1;
				taken[i] = true;
			}
	}
	if (m->n_gpus < 2 || taken[0] || taken[1])
		return 0;
	int known = topo_assume_links(m, false, e);
	if (!known)
		topo_found_add_unknown(m,
				       "NVLink or xGMI links between GPUs: the file has no matrix "
				       "of their bandwidths");
	return known < 0 ? -1 : 0;
}
