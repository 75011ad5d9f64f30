#include "agent/engine/ckpt/memory/store.h"

#include "agent/engine/ckpt/storage/pages.h"
#include "agent/engine/ckpt/save/snapshot.h"
#include "base/numbers.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20, IMAGES = 2 };

struct image {
	bool described; /* part is set */
	bool complete;
	int owners; /* the ranks of its generation */
	struct manifest part;
	char *data;
	size_t bytes, room;
};

struct shelf {
	struct image images[IMAGES];
	int newest; /* the last one that became complete; the other one is the next to be replaced */
};

struct ckpt_store {
	struct ckpt_store_options opt;
	struct digester *digester;
	/* of each owner, in this or in an earlier generation; NULL: it never had a copy here, as most ranks
	 * have none */
	struct shelf **shelves;
	int n_shelves;
};

int ckpt_store_open(const struct ckpt_store_options *opt, struct ckpt_store **out, struct err *e)
{
	struct ckpt_store *s = calloc(1, sizeof *s);
	if (s)
		s->digester = ckpt_digester_open();
	if (!s || !s->digester) {
		ckpt_store_close(s);
		return err_set(e, ERR_NOMEM, "no memory for copies of shards");
	}
	if (ckpt_store_begin(s, opt, e)) {
		ckpt_store_close(s);
		return -1;
	}
	*out = s;
	return 0;
}

static int grow(struct ckpt_store *s, int owners)
{
	if (owners <= s->n_shelves)
		return 0;
	struct shelf **shelves = realloc(s->shelves, (size_t)owners * sizeof *shelves);
	if (!shelves)
		return -1;
	memset(shelves + s->n_shelves, 0, (size_t)(owners - s->n_shelves) * sizeof *shelves);
	s->shelves = shelves;
	s->n_shelves = owners;
	return 0;
}

int ckpt_store_begin(struct ckpt_store *s, const struct ckpt_store_options *opt, struct err *e)
{
	struct ckpt_store_options o = *opt;
	o.model = json_deep_copy(opt->model);
	o.layout = json_deep_copy(opt->layout);
	if ((opt->model && !o.model) || (opt->layout && !o.layout) || grow(s, opt->owners)) {
		json_decref(o.model);
		json_decref(o.layout);
		return err_set(e, ERR_NOMEM, "no memory for copies of %d ranks' shards",
			       opt->owners);
	}
	json_decref(s->opt.model);
	json_decref(s->opt.layout);
	s->opt = o;
	return 0;
}

static void forget(struct image *i)
{
	if (i->described)
		ckpt_manifest_fini(&i->part);
	i->described = i->complete = false;
	i->bytes = 0;
}

void ckpt_store_close(struct ckpt_store *s)
{
	if (!s)
		return;
	ckpt_store_forget(s);
	for (int k = 0; k < s->n_shelves; k++) {
		for (int i = 0; s->shelves[k] && i < IMAGES; i++)
			free(s->shelves[k]->images[i].data);
		free(s->shelves[k]);
	}
	free(s->shelves);
	ckpt_digester_close(s->digester);
	json_decref(s->opt.model);
	json_decref(s->opt.layout);
	free(s);
}

void ckpt_store_forget(struct ckpt_store *s)
{
	for (int k = 0; k < s->n_shelves; k++)
		for (int i = 0; s->shelves[k] && i < IMAGES; i++)
			forget(&s->shelves[k]->images[i]);
}

/* The next copy never replaces the only complete one. */
static void find_newest(struct shelf *f)
{
	if (f && !f->images[f->newest].complete && f->images[!f->newest].complete)
		f->newest = !f->newest;
}

void ckpt_store_retain(struct ckpt_store *s,
		       bool (*stays)(const void *arg, int64_t step, uint32_t generation),
		       const void *arg)
{
	for (int k = 0; k < s->n_shelves; k++) {
		for (int i = 0; s->shelves[k] && i < IMAGES; i++) {
			struct image *x = &s->shelves[k]->images[i];
			if (x->complete && stays(arg, x->part.state.step, x->part.generation))
				continue;
			forget(x);
			free(x->data);
			*x = (struct image){ 0 };
		}
		find_newest(s->shelves[k]);
	}
}

void ckpt_store_drop(struct ckpt_store *s, int64_t step, uint32_t generation)
{
	for (int k = 0; k < s->n_shelves; k++) {
		for (int i = 0; s->shelves[k] && i < IMAGES; i++) {
			struct image *x = &s->shelves[k]->images[i];
			if (x->complete && x->part.state.step == step &&
			    x->part.generation == generation)
				forget(x);
		}
		find_newest(s->shelves[k]);
	}
}

/* Checks that there is such an owner, and makes its shelf. */
static int open_shelf(struct ckpt_store *s, int owner, struct err *e)
{
	if (owner < 0 || owner >= s->opt.owners)
		return err_set(e, ERR_INTERNAL, "rank %d owns no shard: there are %d", owner,
			       s->opt.owners);
	if (!s->shelves[owner])
		s->shelves[owner] = calloc(1, sizeof(struct shelf));
	return s->shelves[owner]
		       ? 0
		       : err_set(e, ERR_NOMEM, "no memory for copies of rank %d's shard", owner);
}

/* The image that the next copy replaces. */
static struct image *next_image(struct ckpt_store *s, int owner)
{
	return &s->shelves[owner]->images[!s->shelves[owner]->newest];
}

static int reserve(struct image *i, size_t bytes, struct err *e)
{
	if (bytes > i->room) {
		free(i->data);
		i->room = 0;
		i->data = ckpt_pages_alloc(bytes);
		if (!i->data)
			return err_set(e, ERR_NOMEM,
				       "no memory for a copy of %zu bytes; give the node more "
				       "memory, or run fewer ranks per node",
				       bytes);
		i->room = bytes;
	}
	i->bytes = bytes;
	return 0;
}

/* --- This rank's own shard --- */

/* Copies the boxes that have elements. */
static int list_boxes(const struct ckpt_tensor *tensors, int n, struct ckpt_tensor **out,
		      int *count, size_t *bytes, struct err *e)
{
	struct ckpt_tensor *list = malloc(((size_t)n + 1) * sizeof *list);
	int64_t elements, total = 0;
	int boxes = 0;
	if (!list)
		return err_set(e, ERR_NOMEM, "no memory for a copy of %d tensors", n);
	for (int i = 0; i < n; i++) {
		if (ckpt_box_elements(&tensors[i], &elements, e)) {
			free(list);
			return -1;
		}
		if (elements)
			list[boxes++] = tensors[i];
		total += elements;
	}
	*out = list;
	*count = boxes;
	*bytes = (size_t)total * sizeof(float);
	return 0;
}

/* Describes the box as the next slice of the image, and copies its elements there. */
static int copy_box(struct image *i, const struct ckpt_tensor *t, int64_t *offset, struct err *e)
{
	struct manifest_slice slice = { .offset = *offset,
					.lo = { t->lo[0], t->lo[1] },
					.hi = { t->hi[0], t->hi[1] } };
	if (ckpt_manifest_add_slice(&i->part, t->name, t->dims, t->shape, &slice, e))
		return -1;
	int64_t elements;
	ckpt_box_elements(t, &elements, NULL);
	size_t bytes = (size_t)elements * sizeof *t->data;
	char *to = i->data + i->part.files[0].header + *offset;
	*offset += (int64_t)bytes;
	if (t->there)
		return t->there->get(t->there->arg, to, t->data, bytes, e);
	memcpy(to, t->data, bytes);
	return 0;
}

static int fill_image(struct image *i, int owner, const struct ckpt_tensor *list, int n,
		      size_t bytes, const struct buf *header, struct err *e)
{
	struct manifest_file file;
	int64_t offset = 0;
	ckpt_shard_describe(owner, header, bytes, &file);
	if (ckpt_manifest_add_file(&i->part, &file, e) || reserve(i, (size_t)file.size, e))
		return -1;
	memcpy(i->data, header->data, header->len);
	for (int k = 0; k < n; k++)
		if (copy_box(i, &list[k], &offset, e))
			return -1;
	return 0;
}

int ckpt_store_take(struct ckpt_store *s, int owner, const struct ckpt_state *state,
		    uint32_t generation, const struct ckpt_tensor *tensors, int n, struct err *e)
{
	struct ckpt_tensor *list = NULL;
	struct buf header = BUF_INIT;
	size_t bytes = 0;
	int boxes = 0, rc = 0;
	if (open_shelf(s, owner, e) || list_boxes(tensors, n, &list, &boxes, &bytes, e))
		return -1;
	struct image *i = next_image(s, owner);
	forget(i);
	ckpt_manifest_init(&i->part, state, generation, s->opt.model, s->opt.layout);
	i->described = true;
	i->owners = s->opt.owners;
	if (boxes)
		rc = ckpt_shard_header(list, boxes, state->step, &header, e) ||
		     fill_image(i, owner, list, boxes, bytes, &header, e);
	buf_fini(&header);
	free(list);
	if (rc)
		forget(i);
	return rc ? -1 : 0;
}

static bool cancelled(const struct ckpt_store *s)
{
	return s->opt.cancel && atomic_load(s->opt.cancel);
}

/* sums: those of the tensor's blocks, reserved for the slice; NULL: they are not wanted. */
static struct digest digest_slice(struct ckpt_store *s, const struct manifest_tensor *t,
				  const struct manifest_slice *slice, const char *at,
				  struct ckpt_sums *sums, bool *bad)
{
	int64_t bytes = ckpt_slice_bytes(slice);
	*bad = false;
	ckpt_digester_start(s->digester);
	for (int64_t done = 0, n; done < bytes && !cancelled(s); done += n, at += n) {
		n = min_int64(CHUNK, bytes - done);
		*bad |= ckpt_has_bad_number(at, (size_t)n);
		ckpt_digester_add(s->digester, at, (size_t)n);
		if (sums)
			ckpt_sums_add(sums, t->dims, t->shape, slice->lo, slice->hi,
				      done / (int64_t)sizeof(float), n / (int64_t)sizeof(float),
				      (const float *)(const void *)at);
		if (s->opt.watch)
			s->opt.watch->moved(s->opt.watch->arg);
	}
	return ckpt_digester_end(s->digester);
}

/* Makes room for the sums of all blocks that the tensor's slices touch. */
static int start_sums(struct manifest_tensor *t, struct err *e)
{
	ckpt_sums_fini(&t->sums);
	for (int64_t j = 0; j < t->n; j++) {
		int64_t first, last;
		ckpt_blocks_touched(t->dims, t->shape, t->slices[j].lo, t->slices[j].hi, &first,
				    &last);
		if (ckpt_sums_reserve(&t->sums, first, last, e))
			return -1;
	}
	t->has_sums = true;
	return 0;
}

/* Computes each slice's digest and the sums: sets them, or compares the digest with the one that is
 * there. */
static int digest_image(struct ckpt_store *s, struct image *i, bool compare, struct err *e)
{
	for (int64_t k = 0; k < i->part.n_tensors; k++) {
		struct manifest_tensor *t = &i->part.tensors[k];
		if (!compare && start_sums(t, e))
			return -1;
		for (int64_t j = 0; j < t->n; j++) {
			struct manifest_slice *slice = &t->slices[j];
			bool bad;
			struct digest d = digest_slice(s, t, slice,
						       i->data + i->part.files[slice->file].header +
							       slice->offset,
						       compare ? NULL : &t->sums, &bad);
			if (cancelled(s))
				return err_set(e, ERR_ABORTED, "the generation ends");
			if (compare && !ckpt_digest_equal(&d, &slice->digest))
				return err_set(e, ERR_CORRUPT,
					       "%s: tensor %s: the digest of a copy in memory "
					       "differs: its bytes changed on their way or in "
					       "memory",
					       i->part.files[0].name, t->name);
			if (bad)
				return ckpt_bad_number(t->name, e);
			slice->digest = d;
		}
	}
	return 0;
}

/* Completes the copy, or drops it. */
static int finish(struct ckpt_store *s, int owner, int rc)
{
	struct image *i = next_image(s, owner);
	if (rc) {
		forget(i);
		return -1;
	}
	i->complete = true;
	s->shelves[owner]->newest = !s->shelves[owner]->newest;
	return 0;
}

int ckpt_store_seal(struct ckpt_store *s, int owner, struct err *e)
{
	if (open_shelf(s, owner, e))
		return -1;
	struct image *i = next_image(s, owner);
	if (!i->described || i->complete)
		return err_set(e, ERR_INTERNAL, "rank %d: there is no copy to complete", owner);
	return finish(s, owner, digest_image(s, i, false, e));
}

/* --- Copies of other ranks' shards --- */

static int check_part(const struct manifest *part, int owner, struct err *e)
{
	struct manifest_file file;
	ckpt_shard_describe(owner, &(struct buf)BUF_INIT, 0, &file);
	if (part->n_files > 1 || (part->n_files == 0 && part->n_tensors) ||
	    (part->n_files == 1 && strcmp(part->files[0].name, file.name)))
		return err_set(e, ERR_CORRUPT, "the manifest of a copy is not of rank %d's shard",
			       owner);
	return 0;
}

int ckpt_store_receive(struct ckpt_store *s, int owner, const char *text, size_t n, char **image,
		       size_t *bytes, struct err *e)
{
	struct manifest part;
	if (open_shelf(s, owner, e) || ckpt_manifest_parse(text, n, "a copy's manifest", &part, e))
		return -1;
	struct image *i = next_image(s, owner);
	forget(i);
	i->part = part;
	i->described = true;
	i->owners = s->opt.owners;
	size_t size = part.n_files ? (size_t)part.files[0].size : 0;
	if (check_part(&part, owner, e) || reserve(i, size, e)) {
		forget(i);
		return -1;
	}
	*image = i->data;
	*bytes = size;
	return 0;
}

int ckpt_store_check(struct ckpt_store *s, int owner, struct err *e)
{
	if (open_shelf(s, owner, e))
		return -1;
	struct image *i = next_image(s, owner);
	if (!i->described || i->complete)
		return err_set(e, ERR_INTERNAL, "rank %d: there is no copy to check", owner);
	const struct manifest_file *f = i->part.files;
	if (i->part.n_files) {
		struct digest d = ckpt_digest_of(i->data, (size_t)f->header);
		if (!ckpt_digest_equal(&d, &f->digest))
			return finish(s, owner,
				      err_set(e, ERR_CORRUPT,
					      "%s: the digest of the header of a copy in memory "
					      "differs",
					      f->name));
	}
	return finish(s, owner, digest_image(s, i, true, e));
}

/* --- What there is --- */

bool ckpt_store_list(const struct ckpt_store *s, int owner, int i, struct store_copy *out)
{
	if (owner < 0 || owner >= s->n_shelves || !s->shelves[owner])
		return false;
	const struct shelf *f = s->shelves[owner];
	for (int k = 0; k < IMAGES; k++) {
		const struct image *x = &f->images[k ? !f->newest : f->newest];
		if (!x->complete || i-- > 0)
			continue;
		*out = (struct store_copy){ owner, x->owners, &x->part, x->data };
		return true;
	}
	return false;
}

bool ckpt_store_find(const struct ckpt_store *s, int owner, int64_t step, uint32_t generation,
		     struct store_copy *out)
{
	struct store_copy copy;
	for (int i = 0; ckpt_store_list(s, owner, i, &copy); i++)
		if (copy.part->state.step == step && copy.part->generation == generation) {
			*out = copy;
			return true;
		}
	return false;
}

int ckpt_store_owners(const struct ckpt_store *s)
{
	return s->n_shelves;
}
