#include "agent/engine/ckpt/ckpt.h"

#include "agent/engine/ckpt/places/folder.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct latest_search {
	const struct ckpt_storage *storage;
	const char *dir;
	const struct ckpt_wish *wish;
	int64_t n;              /* entries that are not rejected */
	struct err other_model; /* error of the first checkpoint of another model */
};

static void note_skipped(const struct latest_search *s, const struct folder_entry *entry,
			 const char *why)
{
	char text[1200];
	snprintf(text, sizeof text, "checkpoint %s is skipped: %s", entry->name, why);
	if (s->wish->note)
		s->wish->note(text, s->wish->note_arg);
}

/* The error says what is wrong with the checkpoint. Any other one says only that it could not be
 * read now. */
static bool is_verdict(enum err_code code)
{
	return code == ERR_CORRUPT || code == ERR_NOTFOUND || code == ERR_USAGE;
}

/* 1, 0 if it is skipped, or -1. */
static int fits_model(struct latest_search *s, const struct folder_entry *entry, struct err *why)
{
	struct err e = ERR_INIT;
	struct manifest m;
	s->n++;
	if (ckpt_folder_check(s->storage, s->dir, entry, &m, &e)) {
		if (!is_verdict(e.code)) {
			if (s->wish->unread)
				*s->wish->unread = entry->step;
			return err_set(why, e.code,
				       "%s; whether this checkpoint is valid is unknown, so no "
				       "older one is used; mend that, or move %s/%s away",
				       e.text, s->dir, entry->name);
		}
		note_skipped(s, entry, e.text);
		return 0;
	}
	bool accepted = !s->wish->accepts ||
			s->wish->accepts(s->wish->arg, m.state.step, m.generation);
	int rc = accepted ? ckpt_manifest_check_model(&m, s->wish->model, &e) : -1;
	ckpt_manifest_fini(&m);
	if (!accepted) {
		s->n--;
		return 0;
	}
	if (!rc)
		return 1;
	note_skipped(s, entry, e.text);
	if (s->other_model.code == ERR_NONE) {
		s->other_model = e;
		err_prefix(&s->other_model, "%s/%s", s->dir, entry->name);
	}
	return 0;
}

int ckpt_latest(const char *dir, json_t *model, char **path,
		void (*note)(const char *text, void *arg), void *arg, struct err *e)
{
	return ckpt_latest_of(
		dir, &(struct ckpt_wish){ .model = model, .note = note, .note_arg = arg }, path, e);
}

int ckpt_latest_of(const char *dir, const struct ckpt_wish *wish, char **path, struct err *e)
{
	struct latest_search s = { .storage = ckpt_storage_of(dir), .dir = dir, .wish = wish };
	struct folder_entry *list;
	char found[PATH_MAX] = "", *copy = NULL;
	int64_t n;
	int rc = 0;
	if (ckpt_folder_list(s.storage, dir, &list, &n, e))
		return -1;
	for (int64_t i = 0; i < n && !rc; i++)
		if ((rc = fits_model(&s, &list[i], e)) == 1)
			snprintf(found, sizeof found, "%s/%s", dir, list[i].name);
	free(list);
	if (rc < 0)
		return -1;
	if (!found[0] && s.other_model.code != ERR_NONE) {
		if (e)
			*e = s.other_model;
		return -1;
	}
	if (!found[0] && s.n > 0)
		return err_set(e, ERR_CORRUPT,
			       "%s: every checkpoint in it is damaged; `muster ckpt verify` "
			       "reports what each of them lacks: repair one, or move them away to "
			       "start from the beginning",
			       dir);
	if (found[0] && !(copy = strdup(found)))
		return err_set(e, ERR_NOMEM, "%s: no memory for a path", dir);
	*path = copy;
	return 0;
}
