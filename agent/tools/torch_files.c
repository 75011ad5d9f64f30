#include "agent/tools/torch_files.h"

#include "agent/tools/torch_dump.h"
#include "agent/tools/torch_read.h"
#include "base/file.h"
#include "base/run_paths.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static bool is_pickle(const char *path)
{
	unsigned char first = 0;
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	bool is = fd >= 0 && read(fd, &first, 1) == 1 && first == 0x80;
	if (fd >= 0)
		close(fd);
	return is;
}

int tool_torch_file_rank(const char *path)
{
	const char *name = base_name(path);
	long rank = run_torch_rank(name);
	size_t end = strlen(name), digits = 0;
	if (rank >= 0 || !is_pickle(path))
		return (int)rank;
	while (digits < end && strchr("0123456789", name[end - digits - 1]))
		digits++;
	return digits > 0 && digits < 10 ? atoi(name + end - digits) : -1;
}

int tool_torch_files_add(struct torch_files *f, const char *path, int rank, bool own, struct err *e)
{
	struct torch_file *more = realloc(f->list, ((size_t)f->n + 1) * sizeof *more);
	char *copy = strdup(path);
	if (more)
		f->list = more;
	if (!more || !copy) {
		free(copy);
		return err_set(e, ERR_NOMEM, "%s: no memory for its name", path);
	}
	f->list[f->n++] = (struct torch_file){ .path = copy, .rank = rank, .own = own };
	return 0;
}

/* *time_us: when the file was written. */
static int read_file(const struct torch_file *f, json_t **out, int64_t *time_us, struct err *e)
{
	struct buf text = BUF_INIT;
	struct stat st;
	int rc = (f->own ? file_slurp_own : file_slurp)(f->path, TORCH_FILE, &text, e);
	if (!rc)
		rc = tool_torch_read(text.data, text.len, f->path, out, e);
	buf_fini(&text);
	*time_us = stat(f->path, &st) ? 0 : st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
	return rc;
}

/* The failure of one file: it is left out, or nothing can be read. */
static int leave_out(struct torch_file *f, const struct err *why, struct buf *left_out,
		     struct err *e)
{
	if (!f->own || (why->code != ERR_CORRUPT && why->code != ERR_UNSUPPORTED))
		return err_set(e, why->code, "%s", why->text);
	f->unread = true;
	buf_printf(left_out, "; %s", why->text);
	return 0;
}

static int look_at_files(struct torch_files *f, struct torch_world *w, struct buf *left_out,
			 struct err *e)
{
	int rc = 0;
	for (int i = 0; i < f->n && !rc; i++) {
		struct err why = ERR_INIT;
		json_t *dump = NULL;
		int64_t time_us;
		if (read_file(&f->list[i], &dump, &time_us, &why) ||
		    tool_torch_look(w, dump, f->list[i].rank, &why))
			rc = leave_out(&f->list[i], &why, left_out, e);
		json_decref(dump);
	}
	return rc;
}

static int add_file(const struct torch_file *f, const struct torch_world *w, struct trace *t,
		    struct err *e)
{
	json_t *dump = NULL, *ours = NULL;
	int64_t time_us;
	int rc = read_file(f, &dump, &time_us, e);
	if (!rc && !(ours = tool_torch_convert(w, dump, f->rank, time_us, e)))
		rc = err_prefix(e, "%s", f->path);
	if (!rc)
		rc = comm_trace_add_json(t, ours, f->path, e);
	json_decref(ours);
	json_decref(dump);
	return rc;
}

int tool_torch_files_read(struct torch_files *f, struct trace *t, struct buf *left_out,
			  struct err *e)
{
	struct torch_world w = { 0 };
	int rc = look_at_files(f, &w, left_out, e), read = 0;
	for (int i = 0; i < f->n && !rc; i++) {
		if (f->list[i].unread)
			continue;
		rc = add_file(&f->list[i], &w, t, e);
		read++;
	}
	if (!rc && f->n && !read) /* "; " begins the text */
		rc = err_set(e, ERR_CORRUPT, "%.900s", buf_str(left_out) + 2);
	tool_torch_world_fini(&w);
	return rc;
}

void tool_torch_files_fini(struct torch_files *f)
{
	for (int i = 0; i < f->n; i++)
		free(f->list[i].path);
	free(f->list);
	*f = (struct torch_files){ 0 };
}
