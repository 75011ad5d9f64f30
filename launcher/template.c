#include "launcher/template.h"

#include "base/file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEMPLATE_MAX = 1 << 20 };

static int read_template(const char *folder, const char *name, struct buf *out, struct err *e)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
		return err_set(e, ERR_NOTFOUND, "%s: the path of the templates is too long",
			       folder);
	return file_slurp(path, TEMPLATE_MAX, out, e);
}

int launcher_template_read(const char *name, struct buf *out, struct err *e)
{
	/* Relative to an installed program, and to one in build/. */
	static const char *const places[] = { "../share/muster/templates", "../templates" };
	const char *named = getenv("MUSTER_TEMPLATES");
	if (named && *named)
		return read_template(named, name, out, e) ? err_prefix(e, "MUSTER_TEMPLATES") : 0;
	char self[PATH_MAX], folder[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	self[n > 0 ? n : 0] = '\0';
	char *slash = strrchr(self, '/');
	if (slash)
		*slash = '\0';
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		struct err why = ERR_INIT;
		snprintf(folder, sizeof folder, "%s/%s", self, places[i]);
		if (!read_template(folder, name, out, &why))
			return 0;
		if (why.code != ERR_NOTFOUND)
			return err_set(e, why.code, "%s", why.text);
	}
	return err_set(e, ERR_NOTFOUND,
		       "the template %s is neither in %s/%s nor in %s/%s; set MUSTER_TEMPLATES to "
		       "its folder",
		       name, self, places[0], self, places[1]);
}

static const char *value_of(const struct template_value *values, const char *name, size_t len)
{
	for (; values->name; values++)
		if (strlen(values->name) == len && !memcmp(values->name, name, len))
			return values->text;
	return NULL;
}

int launcher_template_render(const char *text, const struct template_value *values, struct buf *out,
			     struct err *e)
{
	while (*text) {
		size_t plain = strcspn(text, "@");
		buf_add(out, text, plain);
		text += plain;
		if (!*text)
			break;
		size_t len = strspn(text + 1, "abcdefghijklmnopqrstuvwxyz_");
		if (!len || text[1 + len] != '@') {
			buf_add(out, text++, 1);
			continue;
		}
		const char *value = value_of(values, text + 1, len);
		if (!value)
			return err_set(
				e, ERR_USAGE,
				"the template has @%.*s@, which muster does not know; remove it",
				(int)len, text + 1);
		buf_puts(out, value);
		text += len + 2;
	}
	return buf_failed(out)
		       ? err_set(e, ERR_NOMEM,
				 "no memory for the text of a template; close other programs")
		       : 0;
}
