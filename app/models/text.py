"""A model's text, made such that UTF-8 and both databases can hold it."""


def storable(text: str) -> str:
    """Without U+0000 and lone surrogates (each becomes U+FFFD); halves of a pair that stand together become one character."""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
