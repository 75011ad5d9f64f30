/* The names in a DIR, or in an entry, of an object store. */
#include "agent/engine/ckpt/places/folder.h"
#include "agent/engine/ckpt/storage/s3_entry.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct name {
	char text[256];
	bool small; /* an object that could be a pointer */
	bool hidden;
};

struct names {
	struct name *list;
	size_t n, cap;
	size_t skip; /* the length of what comes before the names */
};

static int add_name(struct names *l, const char *text, size_t len, bool small, struct err *e)
{
	if (len == 0 || len >= sizeof l->list->text)
		return 0;
	for (size_t i = l->n; i-- > 0;)
		if (!strncmp(l->list[i].text, text, len) && !l->list[i].text[len])
			return 0;
	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 64;
		struct name *more = realloc(l->list, cap * sizeof *more);
		if (!more)
			return err_set(e, ERR_NOMEM, "no memory for a list of %zu names", cap);
		l->list = more;
		l->cap = cap;
	}
	struct name *at = &l->list[l->n++];
	*at = (struct name){ .small = small };
	memcpy(at->text, text, len);
	return 0;
}

static int keep_listed(void *arg, const struct s3_listed *o, struct err *e)
{
	struct names *l = arg;
	if (strlen(o->key) <= l->skip)
		return 0;
	const char *name = o->key + l->skip;
	return add_name(l, name, strcspn(name, "/"), !o->folder && o->size <= CKPT_POINTER_MOST, e);
}

/* An attempt of which no file is complete is known by its unfinished uploads only. */
static int keep_unfinished(void *arg, const struct s3_unfinished *u, struct err *e)
{
	struct names *l = arg;
	if (strlen(u->key) <= l->skip)
		return 0;
	return add_name(l, u->key + l->skip, strcspn(u->key + l->skip, "/"), false, e);
}

static bool is_attempt(const struct name *n)
{
	return !strncmp(n->text, ATTEMPT_PREFIX, strlen(ATTEMPT_PREFIX));
}

static int hide_published(struct s3_client *c, const char *dir, struct names *l, struct err *e)
{
	char path[PATH_MAX];
	struct ckpt_pointer p;
	bool any = false;
	for (size_t i = 0; i < l->n; i++)
		any |= is_attempt(&l->list[i]);
	for (size_t i = 0; i < l->n && any; i++) {
		if (!l->list[i].small)
			continue;
		if (ckpt_storage_join(path, sizeof path, dir, l->list[i].text, e))
			return -1;
		int is = ckpt_s3_pointer(c, path, &p, NULL, e);
		if (is < 0)
			return -1;
		for (size_t k = 0; k < l->n && is; k++)
			l->list[k].hidden |= !strcmp(l->list[k].text, p.attempt);
	}
	return 0;
}

static int list_unfinished(struct s3_client *c, const struct s3_place *dir, struct names *l,
			   struct err *e)
{
	struct s3_place at = *dir;
	struct err why = ERR_INIT;
	size_t n = strlen(at.key);
	snprintf(at.key + n, sizeof at.key - n, "%s" ATTEMPT_PREFIX, n ? "/" : "");
	if (!s3_list_unfinished(c, &at, keep_unfinished, l, &why) || why.code == ERR_UNSUPPORTED ||
	    why.code == ERR_DENIED)
		return 0;
	return err_set(e, why.code, "%s", why.text);
}

static int collect(struct s3_client *c, const char *path, struct names *l, struct err *e)
{
	struct s3_place own, at;
	if (s3_place_parse(path, &own, e) || ckpt_s3_entry_place(c, path, &at, e))
		return -1;
	l->skip = strlen(at.key) + (at.key[0] ? 1 : 0);
	if (s3_list(c, &at, false, 0, keep_listed, l, e))
		return -1;
	if (strcmp(own.key, at.key)) /* the entry of a pointer */
		return 0;
	return list_unfinished(c, &at, l, e) || hide_published(c, path, l, e) ? -1 : 0;
}

int ckpt_s3_list(const struct ckpt_storage *s, const char *path, ckpt_storage_visit *visit,
		 void *arg, struct err *e)
{
	struct s3_client *c;
	struct names l = { 0 };
	(void)s;
	int rc = ckpt_s3_client(&c, e) || collect(c, path, &l, e) ? -1 : 0;
	if (!rc && l.n == 0)
		rc = err_set(e, ERR_NOTFOUND, "%s: there are no objects below it", path);
	for (size_t i = 0; i < l.n && !rc; i++)
		if (!l.list[i].hidden)
			rc = visit(arg, l.list[i].text, e);
	free(l.list);
	return rc;
}
