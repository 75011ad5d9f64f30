/*
 * json_member — reads a JSON object that is untrusted input, and single members of it.
 *
 * A failure is ERR_CORRUPT and names the member; the caller prefixes it with the file. `out` is set
 * only on success. base/fields.h reads objects whose members a table lists.
 */
#ifndef MUSTER_BASE_JSON_MEMBER_H
#define MUSTER_BASE_JSON_MEMBER_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Reads the text of one object of at most 24 levels, without NUL bytes and without a member that is there
 * twice. *out is a new reference. The error's text needs the text's name in front of it. */
int json_member_object(const char *text, size_t len, json_t **out, struct err *e);

/* Whether a member is present and not null. Accepts NULL. */
bool json_member_given(const json_t *member);
/* The member must be an integer from least to most. */
int json_member_int64(const json_t *object, const char *key, int64_t least, int64_t most,
		      int64_t *out, struct err *e);
int json_member_int(const json_t *object, const char *key, int least, int most, int *out,
		    struct err *e);

#endif
