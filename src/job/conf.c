/* Configuration files: telling formats apart. */
#include "base/fs.h"
#include "base/str.h"
#include "base/text.h"
#include "job/conf_int.h"

const char *const fo_conf_format_name[FO_CONF_FORMATS] = {
	[FO_CONF_TOML] = "TOML",
	[FO_CONF_YAML] = "YAML",
	[FO_CONF_JSON] = "JSON",
	[FO_CONF_ARGUMENTS] = "command-line arguments",
	[FO_CONF_PRINTED] = "printed configuration",
	[FO_CONF_PYTHON] = "Python",
};

/* ---- telling formats apart ---- */

static size_t span(const char *s, const char *end, const char *more)
{
	const char *p = s;
	while (p < end && (isalnum((unsigned char)*p) || (*p && strchr(more, *p))))
		p++;
	return (size_t)(p - s);
}

static bool begins(const char *s, const char *end, const char *word)
{
	size_t n = strlen(word);
	return (size_t)(end - s) >= n && !memcmp(s, word, n);
}

/* The first of several words that a line may begin with; false: none. */
static bool begins_any(const char *s, const char *end, const char *const *word)
{
	for (; *word; word++)
		if (begins(s, end, *word))
			return true;
	return false;
}

static const char *const shell_words[] = { "export ", "torchrun", "srun ",      "python ", "python3 ", "deepspeed ",
					   "mpirun ", "set -",    "accelerate", "#SBATCH", "exec ",    "bash ",
					   "NCCL_",   "CUDA_",    "\"${",       "${",      NULL };
static const char *const python_words[] = { "def ", "from ", "import ", "class ", "return ", "@dataclass", NULL };

/* What one line looks like, as points for formats. */
static void judge_line(const char *s, const char *end, int points[FO_CONF_FORMATS])
{
	while (s < end && (*s == ' ' || *s == '\t'))
		s++;
	while (end > s && isspace((unsigned char)end[-1]))
		end--;
	if (s == end)
		return;
	if (begins_any(s, end, python_words))
		points[FO_CONF_PYTHON] += 8; /* its keywords look like settings of other formats */
	if (begins_any(s, end, shell_words) || (s < end - 1 && end[-1] == '\\' && isspace((unsigned char)end[-2])))
		points[FO_CONF_ARGUMENTS] += 2;
	if (*s == '#')
		return;
	if (s[0] == '-' && end - s > 2 && s[1] == '-' && isalpha((unsigned char)s[2])) {
		size_t key = 2 + span(s + 2, end, "_-.");
		points[s + key < end && s[key] == ':' ? FO_CONF_YAML : FO_CONF_ARGUMENTS] += 2;
		return;
	}
	if (*s == '[' && end[-1] == ']' && end - s > 2 && (isalpha((unsigned char)s[1]) || s[1] == '['))
		points[FO_CONF_TOML] += 4;
	if (*s == '-' && (end - s == 1 || s[1] == ' '))
		points[FO_CONF_YAML]++;
	const char *key = s + (*s == '"' || *s == '\'');
	const char *after = key + span(key, end, "_-./<");
	if (after < end && (*after == '"' || *after == '\''))
		after++;
	if (after == s || after >= end)
		return;
	if (*after == ':' && (after + 1 == end || after[1] == ' '))
		points[FO_CONF_YAML] += 2;
	if (*after == ' ' || *after == '\t')
		points[FO_CONF_TOML] += 2 * begins(after + strspn(after, " \t"), end, "= ");
	else if (*after == '+' || (*after == '=' && after + 1 < end && (after[1] == '(' || after[1] == '$')))
		points[FO_CONF_ARGUMENTS] += 2;
	else if (*after == '=')
		points[isupper((unsigned char)*s) ? FO_CONF_ARGUMENTS : FO_CONF_TOML]++;
}

/* The format whose lines are the most. */
static enum fo_conf_format judge(const char *text, size_t len)
{
	int points[FO_CONF_FORMATS] = { 0 };
	for (const char *s = text, *all = text + len; s < all;) {
		const char *end = memchr(s, '\n', (size_t)(all - s));
		end = end ? end : all;
		judge_line(s, end, points);
		s = end + (end < all);
	}
	enum fo_conf_format best = FO_CONF_YAML;
	for (int f = 0; f < FO_CONF_FORMATS; f++)
		if (points[f] > points[best])
			best = (enum fo_conf_format)f;
	return best;
}

/* Does a line begin with '#'? */
static bool has_comments(const char *text, size_t len)
{
	for (const char *s = text, *all = text + len; s < all;) {
		const char *end = memchr(s, '\n', (size_t)(all - s));
		end = end ? end : all;
		while (s < end && (*s == ' ' || *s == '\t'))
			s++;
		if (s < end && *s == '#')
			return true;
		s = end + (end < all);
	}
	return false;
}

static enum fo_conf_format tell(const char *text, size_t len)
{
	size_t at = 0, found;
	while (at < len && isspace((unsigned char)text[at]))
		at++;
	if (at < len && text[at] == '{')
		return has_comments(text, len) ? FO_CONF_YAML
					       : FO_CONF_JSON; /* GPT-NeoX: braces, and YAML's comments */
	if (begins(text + at, text + len, "#!") && memchr(text + at, '\n', len - at)) {
		const char *end = memchr(text + at, '\n', len - at);
		const char *name = text + at;
		while (name < end && !begins(name, end, "sh"))
			name++;
		if (name < end)
			return FO_CONF_ARGUMENTS;
	}
	enum fo_conf_format by_lines = judge(text, len);
	if (by_lines != FO_CONF_PYTHON && fo_conf_find_printed(text, len, &found))
		return FO_CONF_PRINTED;
	return by_lines;
}

/* Something that no text editor wrote? */
static bool is_binary(const char *text, size_t len)
{
	size_t odd = 0, looked = len < 65536 ? len : 65536;
	for (size_t i = 0; i < looked; i++) {
		unsigned char ch = (unsigned char)text[i];
		if (!ch)
			return true;
		odd += ch < 32 && !isspace(ch) && ch != 27;
	}
	return odd > looked / 16;
}

/* The line of the first "{{ ... }}" or "{% ... %}" of Helm, Go or Jinja; 0: none. */
static int template_line(const char *s)
{
	for (int line = 1; *s; s++) {
		line += *s == '\n';
		bool expression = s[0] == '{' && s[1] == '{', statement = s[0] == '{' && s[1] == '%';
		if (!expression && !statement)
			continue;
		const char *end = strstr(s, expression ? "}}" : "%}"), *row = strchr(s, '\n');
		bool blank = isspace((unsigned char)s[2]) || s[2] == '-' || s[2] == '.';
		if (end && blank && (!row || end < row))
			return line;
	}
	return 0;
}

bool fo_conf_is_template(const struct fo_conf *c)
{
	bool may = c->format == FO_CONF_YAML || c->format == FO_CONF_JSON || c->format == FO_CONF_TOML;
	return may && template_line(c->text);
}

fo_status fo_conf_refuse_template(const struct fo_conf *c)
{
	return fo_hint(fo_fail(FO_EFORMAT, "%s:%d: a template, not a configuration: render it first", c->file,
			       template_line(c->text)),
		       "'helm template' or the program that fills it in writes the configuration");
}

static fo_status parse(struct fo_conf *c)
{
	static fo_status (*const reader[FO_CONF_FORMATS])(struct fo_conf *) = {
		[FO_CONF_TOML] = fo_conf_toml,       [FO_CONF_YAML] = fo_conf_yaml,
		[FO_CONF_JSON] = fo_conf_json,       [FO_CONF_ARGUMENTS] = fo_conf_arguments,
		[FO_CONF_PRINTED] = fo_conf_printed, [FO_CONF_PYTHON] = fo_conf_python,
	};
	size_t blank = 0;
	while (blank < c->len && isspace((unsigned char)c->text[blank]))
		blank++;
	if (blank == c->len)
		return fo_fail(FO_EFORMAT, "'%s' is empty: expected a training configuration", c->file);
	if (is_binary(c->text, c->len))
		return fo_fail(FO_EFORMAT, "'%s' is no text: expected a training configuration", c->file);
	c->format = c->function ? FO_CONF_PYTHON : tell(c->text, c->len);
	fo_status st = reader[c->format](c);
	return st == FO_EFORMAT && fo_conf_is_template(c) ? fo_conf_refuse_template(c) : st;
}

static const char *shown_name(struct fo_conf *c, const char *where)
{
	size_t room = 4 * strlen(where) + 1; /* \xNN for each byte */
	return fo_str_visible(fo_arena_alloc(&c->arena, room), room, where);
}

fo_status fo_conf_parse(const char *text, size_t len, const char *where, const char *function, struct fo_conf *out)
{
	*out = (struct fo_conf){ 0 };
	out->file = shown_name(out, where);
	if (len > FO_CONF_BYTES_MAX)
		return fo_fail(FO_EFORMAT, "'%s' has %zu bytes: a configuration has at most %d", out->file, len,
			       FO_CONF_BYTES_MAX);
	if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) { /* byte order mark of some editors */
		text += 3;
		len -= 3;
	}
	char *copy = fo_arena_alloc(&out->arena, len + 1);
	memcpy(copy, text, len);
	out->text = copy;
	out->len = len;
	out->function = function ? fo_arena_strdup(&out->arena, function) : NULL;
	return parse(out);
}

fo_status fo_conf_read(const char *path, struct fo_conf *out)
{
	struct fo_arena a = { 0 };
	char *text;
	size_t len;
	*out = (struct fo_conf){ 0 };
	const char *colon = strrchr(path, ':'), *function = NULL;
	const char *file = path;
	if (colon && colon > path && !fo_fs_exists(path)) {
		file = fo_arena_printf(&a, "%.*s", (int)(colon - path), path);
		function = colon + 1;
	}
	fo_status st = fo_fs_read_regular(&a, file, FO_CONF_BYTES_MAX, &text, &len);
	if (st == FO_EFORMAT)
		fo_hint(st, "a configuration has at most 16 MiB; of a long log, give the part that has the settings");
	if (st == FO_OK)
		st = fo_conf_parse(text, len, file, function, out);
	fo_arena_fini(&a);
	return st;
}
