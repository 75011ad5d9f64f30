#include "base/messages.h"

/* clang-format off */

/* msg_<name>_rows(): the rows of the message's table. */
#define MSG_DEFINITIONS(type, name, FIELDS, sender, doc) \
	static const struct fields_row *msg_##name##_rows(void) \
	{ \
		typedef struct msg_##name fields_struct; \
		static const struct fields_row rows[] = { FIELDS(FIELDS_ROW) FIELDS_END }; \
		return rows; \
	} \
	json_t *msg_##name##_json(const struct msg_##name *m) \
	{ \
		return fields_json(msg_##name##_rows(), m); \
	} \
	int msg_##name##_read(const json_t *body, struct msg_##name *m, struct err *e) \
	{ \
		return fields_read(msg_##name##_rows(), body, "message " #name, m, e); \
	}
MSG_TYPES(MSG_DEFINITIONS)
MSG_DEFINITIONS(, coords, MSG_COORDS_FIELDS, , )
MSG_DEFINITIONS(, program, MSG_PROGRAM_FIELDS, , )
MSG_DEFINITIONS(, predecessor, MSG_PREDECESSOR_FIELDS, , )
MSG_DEFINITIONS(, blame, MSG_BLAME_FIELDS, , )
MSG_DEFINITIONS(, finding, MSG_FINDING_FIELDS, , )
MSG_DEFINITIONS(, link, MSG_LINK_FIELDS, , )
MSG_DEFINITIONS(, skip, MSG_SKIP_FIELDS, , )
MSG_DEFINITIONS(, burn_in_figure, MSG_BURN_IN_FIGURE_FIELDS, , )

/* clang-format on */

static const char *const words[MSG_COUNT] = {
#define MSG_WORD(type, name, FIELDS, sender, doc) [type] = #name,
	MSG_TYPES(MSG_WORD)
#undef MSG_WORD
};

const char *msg_word(enum msg_type type)
{
	return type > MSG_NONE && type < MSG_COUNT ? words[type] : "unknown";
}
