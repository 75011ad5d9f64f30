#include "agent/engine/ckpt/load/load.h"

#include "agent/engine/ckpt/load/read.h"
#include "plan/spec/model/activations.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int check_box(const struct manifest_tensor *have, const struct ckpt_tensor *want,
		     struct err *e)
{
	int64_t columns = want->dims == 2 ? want->shape[1] : 1;
	if (have->dims != want->dims || have->shape[0] != want->shape[0] ||
	    have->shape[1] != columns)
		return err_set(e, ERR_USAGE,
			       "tensor %s: the checkpoint has %d dimensions, %" PRId64 " × %" PRId64
			       ", this job has %d, %" PRId64 " × %" PRId64
			       "; resume with the same model",
			       have->name, have->dims, have->shape[0], have->shape[1], want->dims,
			       want->shape[0], columns);
	for (int i = 0; i < want->dims; i++)
		if (want->lo[i] < 0 || want->lo[i] > want->hi[i] || want->hi[i] > want->shape[i])
			return err_set(e, ERR_INTERNAL,
				       "tensor %s: the box [%" PRId64 ", %" PRId64
				       ") is outside its %" PRId64,
				       have->name, want->lo[i], want->hi[i], want->shape[i]);
	return 0;
}

/* Returns the number of boxes at the start of the list that belong to one tensor. Each slice is
 * read once for all of them. */
static int count_boxes_of_tensor(const struct ckpt_tensor *t, int n)
{
	int run = 1;
	while (run < n && !strcmp(t[run].name, t->name))
		run++;
	return run;
}

static bool any_touches(const struct manifest_slice *s, const struct ckpt_tensor *t, int n)
{
	for (int i = 0; i < n; i++)
		if (ckpt_boxes_touch(t[i].dims, s, &t[i]))
			return true;
	return false;
}

static size_t box_bytes(const struct ckpt_tensor *t)
{
	size_t n = sizeof(float);
	for (int i = 0; i < t->dims; i++)
		n *= (size_t)(t->hi[i] - t->lo[i]);
	return n;
}

static int read_slices(struct ckpt_reader *r, const struct manifest_tensor *have,
		       const struct ckpt_tensor *t, int n, struct err *e)
{
	for (int64_t i = 0; i < have->n; i++)
		if (any_touches(&have->slices[i], t, n) &&
		    ckpt_reader_slice(r, have, &have->slices[i], t, n, e))
			return -1;
	return 0;
}

/* Reads into boxes in host memory, and copies them to the device when they are complete. */
static int read_to_device(struct ckpt_reader *r, const struct manifest_tensor *have,
			  const struct ckpt_tensor *t, int n, struct err *e)
{
	struct ckpt_tensor here[n];
	int rc = 0;
	memcpy(here, t, (size_t)n * sizeof *here);
	for (int i = 0; i < n; i++) {
		here[i].data = malloc(box_bytes(&t[i]) + 1);
		if (!here[i].data)
			rc = err_set(
				e, ERR_NOMEM,
				"tensor %.95s: no memory for %zu bytes of it; close other programs",
				t->name, box_bytes(&t[i]));
	}
	if (!rc)
		rc = read_slices(r, have, here, n, e);
	for (int i = 0; i < n; i++) {
		if (!rc)
			rc = t[i].there->put(t[i].there->arg, t[i].data, here[i].data,
					     box_bytes(&t[i]), e);
		free(here[i].data);
	}
	return rc;
}

bool ckpt_optional(const char *name)
{
	return !strncmp(name, ACT_FP8_TENSORS, strlen(ACT_FP8_TENSORS));
}

int ckpt_load_find(const struct manifest *m, const struct ckpt_tensor *want,
		   const struct manifest_tensor **have, struct err *e)
{
	*have = ckpt_manifest_find(m, want->name);
	if (*have)
		return check_box(*have, want, e);
	if (ckpt_optional(want->name) ||
	    (want->moment && !strcmp(m->state.optimizer, CKPT_NO_OPTIMIZER)))
		return 0;
	return err_set(e, ERR_USAGE,
		       "tensor %.95s: the checkpoint has none of this name; resume with the same "
		       "model",
		       want->name);
}

static int load_tensor(struct ckpt_reader *r, const struct manifest *m, const struct ckpt_tensor *t,
		       int n, struct err *e)
{
	const struct manifest_tensor *have;
	for (int i = 0; i < n; i++)
		if (ckpt_load_find(m, &t[i], &have, e))
			return -1;
	if (!have)
		return 0;
	return t->there ? read_to_device(r, have, t, n, e) : read_slices(r, have, t, n, e);
}

int ckpt_load_boxes(const char *path, const struct manifest *m, const struct ckpt_tensor *tensors,
		    int n, const struct ckpt_watch *watch, struct err *e)
{
	struct ckpt_reader *r;
	int rc = 0;
	if (ckpt_reader_open(path, m, watch, &r, e))
		return -1;
	for (int i = 0, run; i < n && !rc; i += run) {
		run = count_boxes_of_tensor(&tensors[i], n - i);
		rc = load_tensor(r, m, &tensors[i], run, e);
	}
	ckpt_reader_close(r);
	return rc;
}

int ckpt_load(const char *path, json_t *model, struct ckpt_state *state,
	      struct ckpt_tensor *tensors, int n, const struct ckpt_watch *watch, struct err *e)
{
	struct manifest m;
	if (ckpt_manifest_load(path, &m, e))
		return -1;
	int rc = 0;
	if (ckpt_manifest_check_model(&m, model, e))
		rc = err_prefix(e, "%s", path);
	else if (ckpt_load_boxes(path, &m, tensors, n, watch, e))
		rc = -1;
	if (!rc && state)
		*state = m.state;
	ckpt_manifest_fini(&m);
	return rc;
}
