/* json — tables of the JSON fields of kinds and their parts, for the writer and the reader. For
 * topo/read/ only. */
#ifndef MUSTER_TOPO_READ_JSON_H
#define MUSTER_TOPO_READ_JSON_H

#include "topo/json.h"

#define JSON_FORMAT "muster cluster 1"

enum field_type {
	FIELD_TEXT,   /* char[size] */
	FIELD_COUNT,  /* int, 0 to `most` */
	FIELD_INDEX,  /* int, -1 to `most` */
	FIELD_FIGURE, /* double; 0 is null */
	FIELD_FLAG,   /* bool */
	FIELD_LINK,   /* enum link_kind, by its word */
};

struct field {
	const char *key;
	enum field_type type;
	size_t offset, size;
	long most;
	bool needed;
};

/* Each table ends with a NULL key. */
extern const struct field topo_fields_kind[], topo_fields_device[], topo_fields_nic[],
	topo_fields_link[], topo_fields_node[], topo_fields_switch[];

#endif
