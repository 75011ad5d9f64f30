#include "base/json_member.h"

#include <inttypes.h>

bool json_member_given(const json_t *member)
{
	return member && !json_is_null(member);
}

int json_member_int64(const json_t *object, const char *key, int64_t least, int64_t most,
		      int64_t *out, struct err *e)
{
	const json_t *member = json_object_get(object, key);
	int64_t value = json_integer_value(member);
	if (!json_is_integer(member))
		return err_set(e, ERR_CORRUPT, "\"%s\" is missing or is not an integer", key);
	if (value < least)
		return err_set(e, ERR_CORRUPT,
			       "\"%s\" is %" PRId64 "; it must be at least %" PRId64, key, value,
			       least);
	if (value > most)
		return err_set(e, ERR_CORRUPT, "\"%s\" is %" PRId64 "; it must be at most %" PRId64,
			       key, value, most);
	*out = value;
	return 0;
}

int json_member_int(const json_t *object, const char *key, int least, int most, int *out,
		    struct err *e)
{
	int64_t value;
	if (json_member_int64(object, key, least, most, &value, e))
		return -1;
	*out = (int)value;
	return 0;
}
