#include "agent/engine/train/set_aside.h"

#include "agent/engine/ckpt/places/folder.h"
#include "base/log.h"
#include "base/messages.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define UNDONE "undone-"

bool train_is_undone(const json_t *rollbacks, int64_t step, uint32_t generation)
{
	for (size_t i = 0; i < json_array_size(rollbacks); i++) {
		struct msg_skip m;
		if (!msg_skip_read(json_array_get(rollbacks, i), &m, NULL) && m.has_resume &&
		    step > m.resume && generation <= m.generation)
			return true;
	}
	return false;
}

/* The number of entries from the first (newest) one on that are undone. A damaged entry between
 * them counts with them. An entry that is valid follows; otherwise the last valid one stays. */
static int64_t count_undone(const struct ckpt_storage *s, const char *dir,
			    const struct folder_entry *list, int64_t n, const json_t *rollbacks)
{
	int64_t last_valid = 0;
	for (int64_t i = 0; i < n; i++) {
		struct manifest m;
		if (ckpt_folder_check(s, dir, &list[i], &m, NULL))
			continue;
		uint32_t generation = m.generation;
		ckpt_manifest_fini(&m);
		last_valid = i;
		if (!train_is_undone(rollbacks, list[i].step, generation))
			return i;
	}
	return last_valid;
}

static int rename_entry(const struct ckpt_storage *s, const char *dir,
			const struct folder_entry *entry, struct err *e)
{
	char from[PATH_MAX], to[PATH_MAX];
	if (snprintf(from, sizeof from, "%s/%s", dir, entry->name) >= (int)sizeof from)
		return err_set(e, ERR_USAGE, "%s: the path is too long", dir);
	if (ckpt_storage_set_aside(s, from, UNDONE, to, e))
		return -1;
	log_warn("%s: a rollback goes back beyond it; it is renamed to %s", from, to);
	return 0;
}

int train_set_aside(const char *dir, const json_t *rollbacks, struct err *e)
{
	const struct ckpt_storage *s = ckpt_storage_of(dir);
	struct folder_entry *list;
	int64_t n;
	if (!train_is_undone(rollbacks, INT64_MAX, 0))
		return 0;
	if (ckpt_folder_list(s, dir, &list, &n, e))
		return -1;
	int rc = 0;
	for (int64_t i = 0, undone = count_undone(s, dir, list, n, rollbacks); i < undone && !rc;
	     i++)
		rc = rename_entry(s, dir, &list[i], e);
	free(list);
	return rc;
}
