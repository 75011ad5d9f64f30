/* local: finds the checkpoint whose files the nodes have together. */
#include "agent/engine/ckpt/places/local.h"

#include "agent/engine/ckpt/load/agree.h"
#include "agent/engine/ckpt/save/commit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An entry of a node, as its leader offers it to the others. */
struct offer {
	int64_t step;
	struct digest digest; /* of the whole manifest, so that equal ones are of one checkpoint */
	char name[64];
	int32_t rank; /* the leader */
};

struct search {
	struct comm *world;
	const struct ckpt_storage *storage;
	const struct ckpt_local *local;
	const struct ckpt_wish *wish;
	bool leads;
	struct offer *offers; /* of all nodes, in order */
	int64_t n;
	struct err other_model; /* error of the first checkpoint of another model */
};

static void note_skipped(const struct search *s, const struct offer *o, const char *why)
{
	char text[1200];
	if (comm_rank(s->world) || !s->wish->note)
		return;
	snprintf(text, sizeof text, "checkpoint %s on the nodes is skipped: %s", o->name, why);
	s->wish->note(text, s->wish->note_arg);
}

/* --- what the nodes have --- */

static int read_text(const struct ckpt_storage *s, const char *dir, const char *name,
		     struct buf *out, struct err *e)
{
	char entry[PATH_MAX], path[PATH_MAX];
	if (ckpt_storage_join(entry, sizeof entry, dir, name, e) ||
	    ckpt_storage_join(path, sizeof path, entry, MANIFEST_NAME, e))
		return -1;
	return ckpt_storage_read_whole(s, path, MANIFEST_BYTES_MAX, out, e);
}

/* Whether the entry has a manifest of its step that the search accepts. */
static bool describe(const struct search *s, const struct folder_entry *entry, struct offer *out)
{
	struct buf text = BUF_INIT;
	struct manifest m;
	bool fits = !read_text(s->storage, s->local->dir, entry->name, &text, NULL) &&
		    !ckpt_manifest_parse(text.data, text.len, entry->name, &m, NULL);
	if (fits) {
		fits = m.state.step == entry->step &&
		       (!s->wish->accepts ||
			s->wish->accepts(s->wish->arg, m.state.step, m.generation));
		ckpt_manifest_fini(&m);
	}
	*out = (struct offer){ .step = entry->step, .rank = comm_rank(s->world) };
	if (fits)
		out->digest = ckpt_digest_of(text.data, text.len);
	snprintf(out->name, sizeof out->name, "%s", entry->name);
	buf_fini(&text);
	return fits;
}

/* The offers of this node; none on ranks that do not lead. */
static struct offer *list_own(const struct search *s, int64_t *n)
{
	struct folder_entry *list = NULL;
	int64_t found = 0;
	*n = 0;
	if (s->leads && ckpt_folder_list(s->storage, s->local->dir, &list, &found, NULL))
		found = 0;
	struct offer *own = calloc((size_t)found + 1, sizeof *own);
	for (int64_t i = 0; i < found && own; i++)
		*n += describe(s, &list[i], &own[*n]);
	free(list);
	return own;
}

/* The highest step first; offers of one checkpoint are neighbours, the lowest rank first. */
static int compare_offers(const void *a, const void *b)
{
	const struct offer *x = a, *y = b;
	if (x->step != y->step)
		return x->step > y->step ? -1 : 1;
	int by = memcmp(&x->digest, &y->digest, sizeof x->digest);
	if (!by)
		by = strcmp(x->name, y->name);
	return by ? by : x->rank - y->rank;
}

static bool is_same_checkpoint(const struct offer *a, const struct offer *b)
{
	return a->step == b->step && !memcmp(&a->digest, &b->digest, sizeof a->digest) &&
	       !strcmp(a->name, b->name);
}

static int gather_offers(struct search *s, struct err *e)
{
	int size = comm_size(s->world), rc = -1;
	int64_t mine, *lens = calloc((size_t)size, sizeof *lens);
	size_t *counts = calloc((size_t)size, sizeof *counts), total = 0;
	struct offer *own = list_own(s, &mine);
	struct err why = ERR_INIT;
	int none = lens && counts && own
			   ? 0
			   : err_set(&why, ERR_NOMEM, "no memory for the checkpoints of %d ranks",
				     size);
	if (ckpt_agree_result(s->world, none, &why, e) ||
	    comm_all_gather(s->world, &mine, lens, 1, COMM_I64, e))
		goto done;
	for (int i = 0; i < size; i++) {
		s->n += lens[i];
		total += counts[i] = (size_t)lens[i] * sizeof *own;
	}
	s->offers = malloc(total + 1);
	none = s->offers ? 0
			 : err_set(&why, ERR_NOMEM, "no memory for %" PRId64 " checkpoints", s->n);
	if (ckpt_agree_result(s->world, none, &why, e) ||
	    comm_all_gatherv(s->world, own, s->offers, counts, COMM_U8, e))
		goto done;
	qsort(s->offers, (size_t)s->n, sizeof *s->offers, compare_offers);
	rc = 0;
done:
	free(lens);
	free(counts);
	free(own);
	return rc;
}

/* --- one checkpoint --- */

/* The manifest, from the rank that offers it to all. 0: nobody has it, because the rank cannot read
 * it any more. */
static int share_manifest(const struct search *s, const struct offer *o, struct manifest *out,
			  struct err *e)
{
	struct buf text = BUF_INIT;
	struct err mine = ERR_INIT;
	bool own = comm_rank(s->world) == o->rank;
	int64_t n = -1;
	int rc = -1;
	if (own && !read_text(s->storage, s->local->dir, o->name, &text, NULL))
		n = (int64_t)text.len;
	if (comm_broadcast(s->world, &n, 1, COMM_I64, o->rank, e))
		goto done;
	if (n < 0) {
		rc = 0;
		goto done;
	}
	char *to = own ? text.data : buf_room(&text, (size_t)n + 1);
	int failed = to ? 0 : err_set(&mine, ERR_NOMEM, "no memory for a manifest");
	if (ckpt_agree_result(s->world, failed, &mine, e) ||
	    comm_broadcast(s->world, to, (size_t)n, COMM_U8, o->rank, e))
		goto done;
	failed = ckpt_manifest_parse(to, (size_t)n, o->name, out, &mine);
	if (ckpt_agree_result(s->world, failed, &mine, e)) {
		if (!failed)
			ckpt_manifest_fini(out);
		goto done;
	}
	rc = 1;
done:
	buf_fini(&text);
	return rc;
}

static bool has_file(const struct search *s, const char *entry, const char *name, int64_t size)
{
	char path[PATH_MAX];
	int64_t found;
	return !ckpt_storage_join(path, sizeof path, entry, name, NULL) &&
	       !s->storage->ops->size(s->storage, path, &found, NULL) && found == size;
}

/* The leader looks for the files of the manifest in the folder of its node. */
static void look_for_files(const struct search *s, struct ckpt_local_found *f)
{
	const struct manifest *m = &f->manifest;
	int32_t rank = comm_rank(s->world);
	for (int64_t i = 0; i < m->n_files && s->leads; i++)
		if (has_file(s, f->path, m->files[i].name, m->files[i].size))
			f->holder[i] = rank;
	for (int i = 0; i < m->n_attached && s->leads; i++)
		if (has_file(s, f->path, m->attached[i].name, m->attached[i].size))
			f->holder[m->n_files + i] = rank;
}

/* Lists the ranks of each node. */
static int list_nodes(const struct search *s, struct ckpt_local_found *f, struct err *e)
{
	int size = comm_size(s->world), n = 0;
	int32_t mine = s->local->node, *nodes = calloc((size_t)size, sizeof *nodes);
	struct err why = ERR_INIT;
	f->by_node = calloc((size_t)size, sizeof *f->by_node);
	f->first = calloc((size_t)size, sizeof *f->first);
	f->count = calloc((size_t)size, sizeof *f->count);
	int rc = nodes && f->by_node && f->first && f->count
			 ? 0
			 : err_set(&why, ERR_NOMEM, "no memory for the nodes of %d ranks", size);
	rc = ckpt_agree_result(s->world, rc, &why, e) ||
			     comm_all_gather(s->world, &mine, nodes, 1, COMM_I32, e)
		     ? -1
		     : 0;
	for (int leader = 0; leader < size && !rc; leader++) {
		if (nodes[leader] < 0)
			continue;
		int32_t node = nodes[leader];
		f->first[leader] = n;
		for (int r = leader; r < size; r++)
			if (nodes[r] == node) {
				f->by_node[n++] = r;
				nodes[r] = -1;
			}
		f->count[leader] = n - f->first[leader];
	}
	free(nodes);
	return rc;
}

int ckpt_local_holders(const struct ckpt_local_found *f, int64_t file, const int **ranks)
{
	int leader = f->holder[file];
	*ranks = f->by_node + f->first[leader];
	return f->count[leader];
}

/* Sets who has which file; *lacking: how many nobody has. */
static int locate_files(const struct search *s, struct ckpt_local_found *f, int64_t *lacking,
			struct err *e)
{
	int64_t n = f->manifest.n_files + f->manifest.n_attached;
	int32_t size = comm_size(s->world);
	struct err mine = ERR_INIT;
	f->holder = calloc((size_t)n + 1, sizeof *f->holder);
	int rc = f->holder ? 0
			   : err_set(&mine, ERR_NOMEM,
				     "no memory for the places of %" PRId64 " files", n);
	if (ckpt_agree_result(s->world, rc, &mine, e))
		return -1;
	for (int64_t i = 0; i < n; i++)
		f->holder[i] = size;
	look_for_files(s, f);
	if (comm_all_reduce(s->world, f->holder, f->holder, (size_t)n, COMM_I32, COMM_MIN, e) ||
	    list_nodes(s, f, e))
		return -1;
	*lacking = 0;
	for (int64_t i = 0; i < n; i++)
		*lacking += f->holder[i] == size;
	return 0;
}

/* Whether the manifest is of this model, and proven. The same on all ranks. */
static bool fits_model(struct search *s, const struct offer *o, const struct manifest *m)
{
	struct err e = ERR_INIT;
	if (ckpt_manifest_prove(m, &e)) {
		note_skipped(s, o, e.text);
		return false;
	}
	if (!s->wish->model || !ckpt_manifest_check_model(m, s->wish->model, &e))
		return true;
	note_skipped(s, o, e.text);
	if (s->other_model.code == ERR_NONE) {
		s->other_model = e;
		err_prefix(&s->other_model, "%s/%s", s->local->dir, o->name);
	}
	return false;
}

/* 1: it is whole; 0: it is not. */
static int try_offer(struct search *s, const struct offer *o, struct ckpt_local_found *f,
		     struct err *e)
{
	char why[160];
	int64_t lacking;
	memset(f, 0, sizeof *f);
	int rc = share_manifest(s, o, &f->manifest, e);
	if (rc <= 0)
		return rc;
	snprintf(f->name, sizeof f->name, "%s", o->name);
	snprintf(f->path, sizeof f->path, "%.*s/%s", PATH_MAX - 80, s->local->dir, o->name);
	if (!fits_model(s, o, &f->manifest)) {
		ckpt_local_found_fini(f);
		return 0;
	}
	if (locate_files(s, f, &lacking, e)) {
		ckpt_local_found_fini(f);
		return -1;
	}
	if (!lacking)
		return 1;
	snprintf(why, sizeof why, "%" PRId64 " of its %" PRId64 " files are on no node of this run",
		 lacking, f->manifest.n_files + f->manifest.n_attached);
	note_skipped(s, o, why);
	ckpt_local_found_fini(f);
	return 0;
}

int ckpt_local_latest(struct comm *world, const struct ckpt_local *l, const struct ckpt_wish *wish,
		      struct ckpt_local_found *out, struct err *e)
{
	struct search s = { .world = world,
			    .storage = l->storage ? l->storage : ckpt_storage_of(l->dir),
			    .local = l,
			    .wish = wish };
	struct ckpt_local_found *f = calloc(1, sizeof *f);
	struct err mine = ERR_INIT;
	int rc = f ? 0 : err_set(&mine, ERR_NOMEM, "no memory to look for checkpoints");
	if (ckpt_agree_result(world, rc, &mine, e) ||
	    ckpt_local_lead(world, l->node, &s.leads, e) || gather_offers(&s, e))
		rc = -1;
	for (int64_t i = 0; i < s.n && !rc; i++)
		if (!i || !is_same_checkpoint(&s.offers[i - 1], &s.offers[i]))
			rc = try_offer(&s, &s.offers[i], f, e);
	if (rc == 1)
		*out = *f;
	else if (!rc && s.other_model.code != ERR_NONE)
		rc = err_set(e, s.other_model.code, "%s", s.other_model.text);
	free(s.offers);
	free(f);
	return rc;
}

void ckpt_local_found_fini(struct ckpt_local_found *f)
{
	ckpt_manifest_fini(&f->manifest);
	free(f->holder);
	free(f->by_node);
	free(f->first);
	free(f->count);
	*f = (struct ckpt_local_found){ 0 };
}

/* --- attached files --- */

/* The bytes of an attached file, from the rank that can read it to all. */
static int share_attached(struct comm *world, const struct ckpt_local_found *f, int i,
			  struct buf *out, struct err *e)
{
	const struct manifest_attached *a = &f->manifest.attached[i];
	int from = f->holder[f->manifest.n_files + i], rc = 0;
	const struct ckpt_storage *s = ckpt_storage_of(f->path);
	struct err mine = ERR_INIT;
	char path[PATH_MAX];
	char *to = NULL;
	if (comm_rank(world) == from)
		rc = ckpt_storage_join(path, sizeof path, f->path, a->name, &mine) ||
		     ckpt_storage_read_whole(s, path, a->size, out, &mine);
	if (comm_rank(world) == from && !rc && out->len != (size_t)a->size)
		rc = err_set(&mine, ERR_CORRUPT,
			     "%s: has %zu bytes, but the manifest says %" PRId64, path, out->len,
			     a->size);
	if (comm_rank(world) != from && !(to = buf_room(out, (size_t)a->size + 1)))
		rc = err_set(&mine, ERR_NOMEM, "%s: no memory for its %" PRId64 " bytes", a->name,
			     a->size);
	if (ckpt_agree_result(world, rc ? -1 : 0, &mine, e))
		return -1;
	if (comm_rank(world) == from)
		to = out->data;
	if (comm_broadcast(world, to, (size_t)a->size, COMM_U8, from, e))
		return -1;
	out->len = (size_t)a->size;
	struct digest d = ckpt_digest_of(to, out->len);
	if (ckpt_digest_equal(&d, &a->digest))
		return 0;
	return err_set(e, ERR_CORRUPT,
		       "%s/%s: the digest differs: its bytes changed after they were written",
		       f->path, a->name);
}

static int take_attached(struct attached *to, const struct manifest_attached *a, struct buf *text,
			 struct err *e)
{
	struct attached_file *file = &to->files[to->n];
	file->data = malloc(text->len + 1);
	if (!file->data)
		return err_set(e, ERR_NOMEM, "%s: no memory for its %zu bytes", a->name, text->len);
	memcpy(file->data, text->data, text->len);
	file->data[text->len] = '\0';
	file->size = text->len;
	snprintf(file->name, sizeof file->name, "%s", a->name);
	to->n++;
	return 0;
}

int ckpt_local_attached(struct comm *world, const struct ckpt_local_found *f, struct attached *out,
			struct err *e)
{
	struct err mine = ERR_INIT;
	int rc = 0;
	bool takes = comm_rank(world) == 0 && out;
	if (takes) {
		ckpt_attached_fini(out);
		snprintf(out->from, sizeof out->from, "%s", f->manifest.from);
	}
	for (int i = 0; i < f->manifest.n_attached && !rc; i++) {
		struct buf text = BUF_INIT;
		rc = share_attached(world, f, i, &text, e);
		int taken = rc || !takes
				    ? 0
				    : take_attached(out, &f->manifest.attached[i], &text, &mine);
		if (!rc)
			rc = ckpt_agree_result(world, taken, &mine, e);
		buf_fini(&text);
	}
	return rc;
}
