#include "agent/engine/ckpt/storage/pointer.h"

#include "agent/engine/ckpt/places/folder.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int ckpt_pointer_write(const char *attempt, struct buf *out, struct err *e)
{
	char host[64] = "", writer[CKPT_POINTER_NAME];
	gethostname(host, sizeof host - 1);
	snprintf(writer, sizeof writer, "%s.%ld", host, (long)getpid());
	json_t *o = json_pack("{s:i, s:s, s:s}", "muster-checkpoint", 1, "attempt", attempt,
			      "writer", writer);
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	if (text)
		buf_puts(out, text);
	free(text);
	return text && !buf_failed(out)
		       ? 0
		       : err_set(e, ERR_NOMEM, "%s: no memory to publish it", attempt);
}

static bool take_name(const json_t *o, const char *key, char out[CKPT_POINTER_NAME])
{
	const char *s = json_string_value(json_object_get(o, key));
	if (!s || !*s || strlen(s) >= CKPT_POINTER_NAME || strchr(s, '/'))
		return false;
	strcpy(out, s);
	return true;
}

bool ckpt_pointer_parse(const char *text, size_t n, struct ckpt_pointer *out)
{
	struct ckpt_pointer p;
	json_t *o = n <= CKPT_POINTER_MOST ? json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL)
					   : NULL;
	bool right = json_integer_value(json_object_get(o, "muster-checkpoint")) == 1 &&
		     take_name(o, "attempt", p.attempt) && take_name(o, "writer", p.writer) &&
		     !strncmp(p.attempt, ATTEMPT_PREFIX, strlen(ATTEMPT_PREFIX));
	json_decref(o);
	if (right)
		*out = p;
	return right;
}
