/*
 * fields — JSON objects whose fields a table lists once.
 *
 * The control channel's messages (base/messages.h) and the events of a run
 * (launcher/rundir/events.h) are such objects. One table per object, a macro, is the source of all
 * the rest: the C struct, the writer, the reader and its error messages.
 *
 *     #define POINT_FIELDS(F)                              \
 *             F(x,     NUMBER, REQUIRED, "metres")         \
 *             F(label, TEXT,   OPTIONAL, "what is there")
 *
 *     struct point { POINT_FIELDS(FIELDS_MEMBER) };
 *
 * A row is F(name, type, need, doc). `name` is both the key in JSON and the member of the struct.
 *
 *     type     member        JSON                       value
 *     INT      int           integer                    any that fits
 *     INT64    int64_t       integer                    at most 2^62 either way
 *     COUNT    int64_t       integer                    0 to 2^62
 *     NUMBER   double        number; null: not finite   any; a reader gives NaN for null
 *     FLAG     bool          true or false
 *     TEXT     const char *  string
 *     LINE     const char *  string                     for people: bytes >= 0x80 become ? if the
 *                                                       text is not UTF-8, which TEXT refuses
 *     JSON     json_t *      object or array
 *
 *     need      member has_<name>  JSON
 *     REQUIRED  none               the key is there
 *     NULLABLE  yes                the key is there; null if has_<name> is false
 *     OPTIONAL  yes                the key is absent if has_<name> is false
 *
 * Keys are written in the order of the table. A reader ignores keys that the table lacks.
 */
#ifndef MUSTER_BASE_FIELDS_H
#define MUSTER_BASE_FIELDS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fields_type {
	FIELDS_INT,
	FIELDS_INT64,
	FIELDS_COUNT,
	FIELDS_NUMBER,
	FIELDS_FLAG,
	FIELDS_TEXT,
	FIELDS_LINE,
	FIELDS_JSON
};

enum fields_need { FIELDS_REQUIRED, FIELDS_NULLABLE, FIELDS_OPTIONAL };

/* One field. An array of them ends with FIELDS_END. */
struct fields_row {
	const char *name;
	enum fields_type type;
	enum fields_need need;
	size_t at, has_at; /* offsets in the struct; has_at: 0 if REQUIRED */
	const char *doc;
};

/* clang-format off */

/* Expands a table to the members of its struct. */
#define FIELDS_MEMBER(name, type, need, doc) FIELDS_HAS_##need(name) FIELDS_C_##type name;

/* Expands a table to its rows; `fields_struct` must be a typedef of the struct. */
#define FIELDS_ROW(name, type, need, doc) \
	{ #name, FIELDS_##type, FIELDS_##need, offsetof(fields_struct, name), FIELDS_HAS_AT_##need(name), doc },

/* The last row: it has no name, and `at` is the size of the struct. */
#define FIELDS_END { NULL, 0, 0, sizeof(fields_struct), 0, NULL }

#define FIELDS_C_INT    int
#define FIELDS_C_INT64  int64_t
#define FIELDS_C_COUNT  int64_t
#define FIELDS_C_NUMBER double
#define FIELDS_C_FLAG   bool
#define FIELDS_C_TEXT   const char *
#define FIELDS_C_LINE   const char *
#define FIELDS_C_JSON   json_t *

#define FIELDS_HAS_REQUIRED(name)
#define FIELDS_HAS_NULLABLE(name) bool has_##name;
#define FIELDS_HAS_OPTIONAL(name) bool has_##name;

#define FIELDS_HAS_AT_REQUIRED(name) 0
#define FIELDS_HAS_AT_NULLABLE(name) offsetof(fields_struct, has_##name)
#define FIELDS_HAS_AT_OPTIONAL(name) offsetof(fields_struct, has_##name)

/* clang-format on */

/* Adds the struct's fields to an object. `record` may be NULL if there are no rows. Members of type
 * TEXT, LINE and JSON are borrowed. ERR_NOMEM. */
int fields_write(const struct fields_row *rows, const void *record, json_t *object, struct err *e);

/* A new object of the struct's fields. NULL if fields_write() fails. */
json_t *fields_json(const struct fields_row *rows, const void *record);

/*
 * Fills the struct from an object. TEXT, LINE and JSON members are borrowed from `object`.
 * ERR_PROTO names the first field that is missing or invalid, after `what` ("message hello"); the
 * valid fields are set nevertheless and all others are zero.
 */
int fields_read(const struct fields_row *rows, const json_t *object, const char *what, void *record,
		struct err *e);

#endif
