#include "agent/engine/ckpt/places/diff.h"
#include "agent/engine/ckpt/format/state_digest.h"
#include "agent/tools/ckpt_dir.h"
#include "agent/tools/tools.h"
#include "base/human.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char page[] =
	"muster ckpt diff — compare two checkpoints\n"
	"\n"
	"SYNOPSIS\n"
	"  muster ckpt diff A B [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Reports the state, the model and the tensors in which two checkpoints differ. A and B\n"
	"  may have different layouts, and each is a checkpoint, or a run's folder or its ckpt\n"
	"  folder; then its last valid checkpoint is compared. Elements are compared bit by bit.\n"
	"  For each tensor that differs, it prints\n"
	"    count     how many elements differ, and of how many\n"
	"    max       the largest absolute difference\n"
	"    relative  |A - B| / |A|, over the elements that were read\n"
	"    first     the first element that differs\n"
	"\n"
	"  Tensors and slices with equal digests are not read, so equal checkpoints are compared\n"
	"  at once. Everything else is read and verified. The path, the generation, the layout\n"
	"  and files attached to the model are not compared.\n"
	"\n"
	"OPTIONS\n"
	"  --json        print as JSON: {a: {path, step, state_digest}, b: {...}, same,\n"
	"                fields: [{name, a, b}], tensors: [{name, what: \"values\", \"shape\",\n"
	"                \"only A\" or \"only B\", elements, count, max_abs, relative, first: [],\n"
	"                not_finite}] (relative is null if A is all zeros), compared: tensors, "
	"read: bytes, skipped: bytes}\n"
	"\n"
	"EXAMPLES\n"
	"  muster ckpt diff runs/a runs/b\n"
	"  muster ckpt diff runs/a/ckpt/step-00000400 runs/b/ckpt/step-00000400 --json\n"
	"\n"
	"EXIT STATUS\n"
	"  0  they hold the same state\n"
	"  1  they differ\n"
	"  2  usage, or one of them cannot be read\n";

/* One of the two. */
struct side {
	char path[PATH_MAX];
	struct manifest m;
	char digest[DIGEST_HEX]; /* "": an older version wrote it */
};

static int side_open(struct side *s, const char *word, struct err *e)
{
	struct ckpt_dir d;
	struct digest digest;
	if (tool_ckpt_dir_open(word, &d, e))
		return -1;
	int rc = tool_ckpt_dir_choose(&d, s->path, &s->m, e);
	tool_ckpt_dir_close(&d);
	if (!rc && ckpt_state_digest(&s->m, &digest, e) == 1)
		ckpt_digest_hex(&digest, s->digest);
	return rc;
}

/* --- state and model --- */

static json_t *state_json(const struct manifest *m)
{
	const struct ckpt_state *s = &m->state;
	char seed[24];
	snprintf(seed, sizeof seed, "%" PRIu64, s->seed);
	json_t *v = json_pack("{s:I, s:I, s:I, s:s, s:s}", "step", (json_int_t)s->step, "samples",
			      (json_int_t)s->samples, "total_steps", (json_int_t)s->total_steps,
			      "seed", seed, "optimizer", s->optimizer);
	if (s->data.samples) {
		json_object_set_new(v, "data.samples", json_integer(s->data.samples));
		json_object_set_new(v, "data.validation", json_real(s->data.validation));
	}
	for (int i = 0; i < s->n_numbers; i++)
		json_object_set_new(v, s->numbers[i].name, json_real(s->numbers[i].value));
	const char *key;
	json_t *x;
	json_object_foreach(m->model, key, x)
	{
		char name[128];
		snprintf(name, sizeof name, "model.%.100s", key);
		json_object_set(v, name, x);
	}
	return v;
}

static void add_field(json_t *list, const char *name, json_t *a, json_t *b)
{
	if (a && b && json_equal(a, b))
		return;
	json_array_append_new(list, json_pack("{s:s, s:O?, s:O?}", "name", name, "a", a, "b", b));
}

/* The fields of the state and the model that differ. */
static json_t *diff_fields(const struct side *a, const struct side *b)
{
	json_t *x = state_json(&a->m), *y = state_json(&b->m), *list = json_array(), *v;
	const char *key;
	json_object_foreach(x, key, v) add_field(list, key, v, json_object_get(y, key));
	json_object_foreach(y, key, v) if (!json_object_get(x, key)) add_field(list, key, NULL, v);
	json_decref(x);
	json_decref(y);
	return list;
}

static void print_fields(json_t *fields)
{
	size_t i;
	json_t *v;
	json_array_foreach(fields, i, v)
	{
		char *a = json_dumps(json_object_get(v, "a"), JSON_ENCODE_ANY),
		     *b = json_dumps(json_object_get(v, "b"), JSON_ENCODE_ANY);
		printf("%-40s %s, %s\n", json_string_value(json_object_get(v, "name")), a ? a : "",
		       b ? b : "");
		free(a);
		free(b);
	}
}

/* --- tensors --- */

static const char *const kinds[] = { [CKPT_DIFF_VALUES] = "values",
				     [CKPT_DIFF_SHAPE] = "shape",
				     [CKPT_DIFF_ONLY_A] = "only A",
				     [CKPT_DIFF_ONLY_B] = "only B" };

struct output {
	json_t *list; /* NULL: text */
};

static void print_tensor(const struct ckpt_diff_tensor *t)
{
	char first[64];
	if (t->kind != CKPT_DIFF_VALUES) {
		printf("%-40s %s\n", t->name,
		       t->kind == CKPT_DIFF_SHAPE ? "another shape" : kinds[t->kind]);
		return;
	}
	snprintf(first, sizeof first, t->dims == 2 ? "[%" PRId64 ", %" PRId64 "]" : "[%" PRId64 "]",
		 t->first[0], t->first[1]);
	printf("%-40s %" PRId64 " of %" PRId64 ", max %.3g, relative %.3g, first %s", t->name,
	       t->count, t->elements, t->max_abs, t->relative, first);
	if (t->not_finite)
		printf(", %" PRId64 " not finite", t->not_finite);
	printf("\n");
}

static int put_tensor(void *arg, const struct ckpt_diff_tensor *t, struct err *e)
{
	const struct output *o = arg;
	(void)e;
	if (!o->list) {
		print_tensor(t);
		return 0;
	}
	json_t *v = json_pack("{s:s, s:s, s:I}", "name", t->name, "what", kinds[t->kind],
			      "elements", (json_int_t)t->elements);
	if (t->kind == CKPT_DIFF_VALUES) {
		json_t *first = json_pack("[I]", (json_int_t)t->first[0]);
		if (t->dims == 2)
			json_array_append_new(first, json_integer(t->first[1]));
		json_object_update_new(
			v, json_pack("{s:I, s:f, s:o?, s:o, s:I}", "count", (json_int_t)t->count,
				     "max_abs", t->max_abs, "relative",
				     isfinite(t->relative) ? json_real(t->relative) : NULL, "first",
				     first, "not_finite", (json_int_t)t->not_finite));
	}
	json_array_append_new(o->list, v);
	return 0;
}

static json_t *side_json(const struct side *s)
{
	return json_pack("{s:s, s:I, s:s?}", "path", s->path, "step", (json_int_t)s->m.state.step,
			 "state_digest", s->digest[0] ? s->digest : NULL);
}

static int print_end(const struct side *a, const struct side *b, json_t *fields, json_t *tensors,
		     const struct ckpt_diff *d)
{
	bool same = json_array_size(fields) == 0 && d->differing == 0;
	if (tensors &&
	    tool_print_json(&tool_ckpt_diff,
			    json_pack("{s:o, s:o, s:b, s:O, s:O, s:I, s:I, s:I}", "a", side_json(a),
				      "b", side_json(b), "same", same, "fields", fields, "tensors",
				      tensors, "compared", (json_int_t)d->tensors, "read",
				      (json_int_t)d->read, "skipped", (json_int_t)d->skipped)))
		return TOOL_USAGE;
	char read[HUMAN], skipped[HUMAN];
	if (!tensors)
		printf("%s: %" PRId64 " of %" PRId64 " tensors differ; %s read, %s skipped\n",
		       same ? "same" : "different", d->differing, d->tensors,
		       human_bytes((double)d->read, read),
		       human_bytes((double)d->skipped, skipped));
	return same ? TOOL_OK : TOOL_FAILED;
}

/* An error is not a difference. */
static int fail(const struct err *e)
{
	tool_fail(&tool_ckpt_diff, e);
	return TOOL_USAGE;
}

static int diff(const char *first, const char *second, bool json)
{
	static struct side a, b; /* too large for a small stack */
	struct err e = ERR_INIT;
	struct ckpt_diff d;
	if (side_open(&a, first, &e))
		return fail(&e);
	if (side_open(&b, second, &e)) {
		ckpt_manifest_fini(&a.m);
		return fail(&e);
	}
	struct output o = { json ? json_array() : NULL };
	json_t *fields = diff_fields(&a, &b);
	if (!json)
		print_fields(fields);
	int rc = ckpt_diff(a.path, &a.m, b.path, &b.m, put_tensor, &o, &d, &e)
			 ? fail(&e)
			 : print_end(&a, &b, fields, o.list, &d);
	json_decref(fields);
	json_decref(o.list);
	ckpt_manifest_fini(&a.m);
	ckpt_manifest_fini(&b.m);
	return rc;
}

static int diff_words(char **words, int n, bool json)
{
	if (n != 2)
		return tool_usage(&tool_ckpt_diff, "A and B are needed, %d were given", n);
	return diff(words[0], words[1], json);
}

static int diff_main(int argc, char **argv)
{
	return tool_words(&tool_ckpt_diff, argc, argv, "A and B are needed", diff_words);
}

const struct tool tool_ckpt_diff = { "ckpt", "diff", diff_main, "compare two checkpoints", page };
