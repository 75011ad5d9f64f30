/*
 * pickle — reads the pickles of PyTorch's checkpoints, and of its flight recorder, as plain values. Nothing is ever executed.
 *
 * A pickle is a program for a stack machine, and Python's own reader imports and calls whatever the
 * program names. This reader knows only the opcodes that build values. A class or function is a row
 * of a closed table (pickle_globals.c): it becomes the value DCP_GLOBAL, and a call of it the value
 * DCP_OBJECT, which holds the arguments. Any other name is refused with ERR_UNSUPPORTED, and any
 * other opcode, too.
 *
 * Limits: DCP_PICKLE_BYTES_MAX bytes of input; every opcode makes at most one value, and values
 * cannot be more than DCP_PICKLE_NODES_MAX; DCP_PICKLE_DEPTH_MAX open marks; a memo index must
 * follow the ones that exist. Neither the reader nor the accessors below recurse. A hostile pickle
 * can make a value that contains itself, which is harmless to a caller who only looks for the
 * members that it knows.
 *
 * All values belong to the struct dcp_pickle; texts point into the input, which must outlive it.
 */
#ifndef MUSTER_AGENT_ENGINE_DCP_PICKLE_H
#define MUSTER_AGENT_ENGINE_DCP_PICKLE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	DCP_PICKLE_BYTES_MAX = 1 << 28,
	DCP_PICKLE_NODES_MAX = 1 << 25,
	DCP_PICKLE_STACK_MAX = 1 << 20,
	DCP_PICKLE_DEPTH_MAX = 64,
};

enum dcp_kind {
	DCP_NONE,
	DCP_BOOL,
	DCP_INT,
	DCP_FLOAT,
	DCP_TEXT,
	DCP_BYTES,
	DCP_TUPLE,
	DCP_LIST,
	DCP_SET,
	DCP_DICT, /* items: key, value, key, value, … */
	DCP_GLOBAL,
	DCP_OBJECT,     /* of the global `of`, with the tuple `args`, and `state` if it has one */
	DCP_PERSISTENT, /* args: a storage that the archive of a tensor holds */
};

/* What a name in a pickle means to us. */
enum dcp_meaning {
	DCP_MEANS_NOTHING, /* may occur; its value does not matter */
	DCP_MEANS_METADATA,
	DCP_MEANS_TENSOR,
	DCP_MEANS_BYTES,
	DCP_MEANS_CHUNK,
	DCP_MEANS_INDEX,
	DCP_MEANS_STORAGE_INFO,
	DCP_MEANS_PROPERTIES,
	DCP_MEANS_SIZE,
	DCP_MEANS_MAPPING,
	DCP_MEANS_DTYPE,
	DCP_MEANS_STORAGE,
	DCP_MEANS_REBUILD_TENSOR,
	DCP_MEANS_REBUILD_PARAMETER,
	DCP_MEANS_ITS_ARGUMENT, /* a call of it is the value of its first argument */
};

struct dcp_global {
	const char *module, *name;
	enum dcp_meaning means;
	const char *dtype; /* of a dtype or a storage: torch's word, such as float32 */
};

struct dcp_value {
	enum dcp_kind kind;
	union {
		bool truth;
		int64_t number;
		double real;
		struct {
			const char *text; /* no NUL at the end */
			size_t length;
		};
		struct {
			struct dcp_value **items;
			int64_t n, room;
		};
		const struct dcp_global *global;
		struct {
			const struct dcp_global *of;
			struct dcp_value *args, *state;
		};
	};
};

struct dcp_pickle {
	struct dcp_value *root;
	struct dcp_arena *arena;
};

/* name: the file's name, for errors. ERR_CORRUPT: not a whole pickle, or one of a form that no
 * PyTorch writes. ERR_UNSUPPORTED: an opcode or a name that the tables do not have. */
int dcp_pickle_parse(const void *data, size_t n, const char *name, struct dcp_pickle *out,
		     struct err *e);
/* The same for a file that is no checkpoint. */
int dcp_pickle_parse_plain(const void *data, size_t n, const char *name, struct dcp_pickle *out,
			   struct err *e);
void dcp_pickle_free(struct dcp_pickle *p);

/* NULL: the name is not in the table. */
const struct dcp_global *dcp_pickle_global(const char *module, size_t m, const char *name,
					   size_t n);

/* --- accessors; all take NULL, and answer false or NULL if the value is of another kind --- */

bool dcp_value_is_object(const struct dcp_value *v, enum dcp_meaning of);
/* A member of a dict, or of the state of an object. */
const struct dcp_value *dcp_value_member(const struct dcp_value *v, const char *key);
/* An item of a tuple or list. */
const struct dcp_value *dcp_value_item(const struct dcp_value *v, int64_t i);
bool dcp_value_int(const struct dcp_value *v, int64_t *out);
bool dcp_value_is_text(const struct dcp_value *v, const char *text);
/* The numbers of a torch.Size, a tuple or a list, each from 0 to 2^48: how many there are, or -1 if
 * they are more than `most` or not such numbers. */
int dcp_value_numbers(const struct dcp_value *v, int64_t *out, int most);

#endif
