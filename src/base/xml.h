/* Text inside XML, SVG and HTML. */
#ifndef FO_BASE_XML_H
#define FO_BASE_XML_H

#include "base/str.h"

/* Appends text as character data that is also safe inside a quoted attribute: & < > " ' become entities; what XML 1.0 does not
 * allow (controls, broken UTF-8, surrogates, U+FFFE and U+FFFF) becomes U+FFFD. */
void fo_xml_text(struct fo_str *out, const char *text);

#endif
