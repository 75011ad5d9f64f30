#include "agent/engine/train/timelines.h"

#include "base/file.h"
#include "base/run_paths.h"

#include <stdlib.h>
#include <string.h>

int train_timelines_save(const struct timeline *t, const char *run_dir, uint32_t generation,
			 int rank, struct err *e)
{
	char dir[RUN_PATH], path[RUN_PATH];
	run_path_trace(dir, run_dir, generation);
	run_path_timeline(path, dir, rank);
	json_t *doc = timeline_json(t);
	char *text = doc ? json_dumps(doc, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	int rc;
	if (!text)
		rc = err_set(e, ERR_NOMEM,
			     "%s: no memory for a timeline of %d events; close other programs",
			     path, t->n);
	else
		rc = file_make_dirs(dir, e) || file_replace(path, text, strlen(text), e) ? -1 : 0;
	free(text);
	json_decref(doc);
	return rc;
}
