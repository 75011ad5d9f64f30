/*
 * ckpt_fixture — a small model in any layout, for the tests of checkpoints.
 *
 * Each element's value is a function of tensor, step and place, so that any box of any tensor can
 * be produced and checked by itself.
 */
#ifndef MUSTER_TESTS_CKPT_FIXTURE_H
#define MUSTER_TESTS_CKPT_FIXTURE_H

#include "agent/engine/ckpt/ckpt.h"
#include "agent/engine/ckpt/places/folder.h"
#include "agent/engine/ckpt/save/snapshot.h"
#include "base/file.h"
#include "base/philox.h"
#include "tests/unit/tmpdir.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { FIX_TENSORS = 7, FIX_BOXES = 128 };

static const struct {
	const char *name;
	int dims, cut; /* the dimension that tp splits, -1: none */
	int64_t shape[2];
} fix_tensors[FIX_TENSORS] = {
	{ "embed.tokens.weight", 2, 0, { 101, 12 } },
	{ "layers.0.attn.q.weight", 2, 0, { 24, 16 } },
	{ "layers.0.attn.o.weight", 2, 1, { 16, 24 } },
	{ "layers.1.mlp.up.bias", 1, 0, { 37, 1 } },
	{ "norm.weight", 1, -1, { 16, 1 } },
	{ "optim.m.layers.0.attn.o.weight", 2, 1, { 16, 24 } },
	{ "optim.m.layers.1.mlp.up.bias", 1, 0, { 37, 1 } },
};

static char fix_dir[512];

static inline float fix_value(int tensor, int64_t step, int64_t row, int64_t column)
{
	uint32_t r[4];
	philox4(philox_key((uint64_t)step, PHILOX_TEST, (uint64_t)tensor),
		(uint64_t)(row * 1000 + column), r);
	return (float)(int32_t)r[0] * 0x1p-20f;
}

static inline struct ckpt_tensor fix_box(int tensor, int64_t lo0, int64_t hi0, int64_t lo1,
					 int64_t hi1)
{
	struct ckpt_tensor t = { .dims = fix_tensors[tensor].dims,
				 .lo = { lo0, lo1 },
				 .hi = { hi0, hi1 },
				 .shape = { fix_tensors[tensor].shape[0],
					    fix_tensors[tensor].shape[1] } };
	strcpy(t.name, fix_tensors[tensor].name);
	t.data = malloc((size_t)((hi0 - lo0) * (hi1 - lo1) + 1) * sizeof(float));
	assert_non_null(t.data);
	return t;
}

static inline void fix_each(const struct ckpt_tensor *t, int tensor, int64_t step, bool check)
{
	float *at = t->data;
	for (int64_t i = t->lo[0]; i < t->hi[0]; i++)
		for (int64_t j = t->lo[1]; j < t->hi[1]; j++, at++) {
			float want = fix_value(tensor, step, i, j);
			if (!check)
				*at = want;
			else if (memcmp(at, &want, sizeof want))
				fail_msg("%s [%d, %d] is %g, not %g", t->name, (int)i, (int)j,
					 (double)*at, (double)want);
		}
}

static inline int fix_tensor_of(const struct ckpt_tensor *t)
{
	for (int i = 0; i < FIX_TENSORS; i++)
		if (!strcmp(fix_tensors[i].name, t->name))
			return i;
	fail_msg("no tensor %s", t->name);
	return -1;
}

struct fix_layout {
	int tp, pp;
	uint64_t cuts; /* seed of the uneven boundaries; 0: even ones */
};

static inline int64_t fix_cut(const struct fix_layout *l, int tensor, int64_t n, int i)
{
	int64_t even = n * i / l->tp;
	uint32_t r[4];
	if (i == 0 || i == l->tp || !l->cuts)
		return even;
	philox4(philox_key(l->cuts, PHILOX_TEST, 99), (uint64_t)(tensor * 64 + i), r);
	int64_t most = n / l->tp; /* boundaries stay in order; pieces may be empty */
	return even - r[0] % (uint32_t)(most + 1);
}

/* Produces the boxes of rank (tp, pp). The values are set if step >= 0. Pieces may be empty. The
 * caller frees the boxes with fix_free. */
static inline int fix_rank(const struct fix_layout *l, int rank, int64_t step, bool all_replicas,
			   struct ckpt_tensor *out)
{
	int n = 0, tp = rank % l->tp, pp = rank / l->tp;
	for (int i = 0; i < FIX_TENSORS; i++) {
		int64_t lo[2] = { 0, 0 },
			hi[2] = { fix_tensors[i].shape[0], fix_tensors[i].shape[1] };
		int cut = fix_tensors[i].cut;
		if (i % l->pp != pp || (cut < 0 && tp && !all_replicas))
			continue;
		if (cut >= 0) {
			lo[cut] = fix_cut(l, i, fix_tensors[i].shape[cut], tp);
			hi[cut] = fix_cut(l, i, fix_tensors[i].shape[cut], tp + 1);
		}
		out[n] = fix_box(i, lo[0], hi[0], lo[1], hi[1]);
		if (step >= 0)
			fix_each(&out[n], i, step, false);
		n++;
	}
	return n;
}

static inline void fix_free(struct ckpt_tensor *tensors, int n)
{
	for (int i = 0; i < n; i++)
		free(tensors[i].data);
}

static inline json_t *fix_model(void)
{
	return json_pack("{s:s, s:i}", "family", "gpt2", "hidden", 16);
}

static inline struct ckpt_state fix_state(int64_t step)
{
	return (struct ckpt_state){
		.step = step, .samples = step * 8, .seed = 1234, .total_steps = 1000
	};
}

static inline const char *fix_path(int64_t step, const char *file)
{
	static char path[4][PATH_MAX];
	static int next;
	char *p = path[next++ % 4];
	snprintf(p, PATH_MAX, "%s/step-%08lld%s%s", fix_dir, (long long)step, file ? "/" : "",
		 file ? file : "");
	return p;
}

/* Writes a whole checkpoint in this process, each rank's shard separately. */
static inline void fix_write(const struct fix_layout *l, int64_t step)
{
	struct err e = ERR_INIT;
	struct manifest m;
	struct snapshot s = { 0 };
	struct buf text = BUF_INIT;
	struct ckpt_state state = fix_state(step);
	json_t *model = fix_model(), *layout = json_object();
	ckpt_manifest_init(&m, &state, 1, model, layout);
	assert_int_equal(mkdir(fix_path(step, NULL), 0700), 0);
	for (int rank = 0; rank < l->tp * l->pp; rank++) {
		struct ckpt_tensor tensors[FIX_TENSORS];
		struct manifest part;
		int n = fix_rank(l, rank, step, false, tensors);
		ckpt_manifest_init(&part, &state, 1, model, layout);
		assert_int_equal(ckpt_snapshot_take(&s, tensors, n), 0);
		if (ckpt_snapshot_write(&s, &ckpt_storage_posix, fix_path(step, NULL), rank, &part,
					&e) ||
		    ckpt_manifest_merge(&m, &part, &e))
			fail_msg("%s", e.text);
		ckpt_manifest_fini(&part);
		fix_free(tensors, n);
	}
	if (ckpt_manifest_prove(&m, &e))
		fail_msg("%s", e.text);
	ckpt_manifest_write(&m, &text);
	assert_int_equal(file_replace(fix_path(step, MANIFEST_NAME), text.data, text.len, &e), 0);
	buf_fini(&text);
	ckpt_snapshot_fini(&s);
	ckpt_manifest_fini(&m);
	json_decref(model);
	json_decref(layout);
}

/* Loads as every rank of the layout and compares the values to the bit. */
static inline void fix_load(const char *path, const struct fix_layout *l, int64_t step)
{
	json_t *model = fix_model();
	for (int rank = 0; rank < l->tp * l->pp; rank++) {
		struct err e = ERR_INIT;
		struct ckpt_state state, want = fix_state(step);
		struct ckpt_tensor tensors[FIX_TENSORS];
		int n = fix_rank(l, rank, -1, true, tensors);
		if (ckpt_load(path, model, &state, tensors, n, NULL, &e))
			fail_msg("%s", e.text);
		assert_memory_equal(&state, &want, sizeof state);
		for (int i = 0; i < n; i++)
			fix_each(&tensors[i], fix_tensor_of(&tensors[i]), step, true);
		fix_free(tensors, n);
	}
	json_decref(model);
}

static inline int fix_setup(void **state)
{
	(void)state;
	return tmpdir_make(fix_dir, sizeof fix_dir / 2) ? 0 : -1; /* tests append names */
}

static inline void fix_remove(const char *path)
{
	struct dirent *f;
	DIR *d = opendir(path);
	while (d && (f = readdir(d))) {
		char name[PATH_MAX];
		struct stat st;
		if (!strcmp(f->d_name, ".") || !strcmp(f->d_name, ".."))
			continue;
		if (snprintf(name, sizeof name, "%s/%s", path, f->d_name) >= (int)sizeof name ||
		    lstat(name, &st))
			continue;
		if (S_ISDIR(st.st_mode))
			fix_remove(name);
		else
			unlink(name);
	}
	if (d)
		closedir(d);
	rmdir(path);
}

static inline int fix_teardown(void **state)
{
	(void)state;
	fix_remove(fix_dir);
	return 0;
}

/* Returns how many names in the folder start with `prefix`. */
static inline int fix_count(const char *prefix)
{
	int n = 0;
	struct dirent *f;
	DIR *d = opendir(fix_dir);
	assert_non_null(d);
	while ((f = readdir(d)))
		n += !strncmp(f->d_name, prefix, strlen(prefix));
	closedir(d);
	return n;
}

static inline void fix_note(const char *text, void *arg)
{
	buf_puts(arg, text);
	buf_puts(arg, "\n");
}

/* Returns the step of the latest checkpoint for the fixture's model, or 0 if there is none. If
 * `notes` is not NULL, the notes of ckpt_latest are appended to it. */
static inline int64_t fix_latest(struct buf *notes)
{
	struct err e = ERR_INIT;
	char *path = NULL;
	json_t *model = fix_model();
	if (ckpt_latest(fix_dir, model, &path, notes ? fix_note : NULL, notes, &e))
		fail_msg("%s", e.text);
	json_decref(model);
	int64_t step = path ? strtoll(strstr(path, "/step-") + 6, NULL, 10) : 0;
	free(path);
	return step;
}

#endif
