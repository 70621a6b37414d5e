"""Reads a page back as a browser would, and holds it to what a page owes its readers."""

from html.parser import HTMLParser

VOID = frozenset({"meta", "br", "link"})
NAMED_ROLES = frozenset({"img", "group"})


class Page(HTMLParser):
    """Tags, ids, links and words of a document; insists that what is opened is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.lists: list[list[str]] = []
        """The words of each ordered list."""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "ol":
            self.lists.append([])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.words.append(data)
            if "ol" in self.open:
                self.lists[-1].append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def list_texts(self) -> list[str]:
        return ["".join(words) for words in self.lists]

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.tags if "id" in attributes]

    def find_faults(self) -> list[str]:
        """What would keep somebody with a screen reader or a keyboard out; empty for a good page."""
        faults = [f"two elements have the id {one}" for one in set(self.ids()) if self.ids().count(one) > 1]
        faults += [
            f"{landmark} is there {len(self.all(landmark))} times"
            for landmark in ("main", "h1", "title")
            if len(self.all(landmark)) != 1
        ]
        faults += ["no language"] if not self.all("html")[0].get("lang") else []
        for tag, attributes in self.tags:
            if attributes.get("role") in NAMED_ROLES and not attributes.get("aria-label"):
                faults.append(f"{tag} with role {attributes['role']} has no name")
            if tag == "section" and attributes.get("aria-labelledby") not in self.ids():
                faults.append(f"section {attributes.get('id')} is named by nothing")
            if tag == "th" and attributes.get("scope") not in {"col", "row"}:
                faults.append("a heading of a table says not of what")
            if "tabindex" in attributes and attributes["tabindex"] != "0":
                faults.append(f"{tag} changes the order of the keyboard")
            faults += [f"{tag} has {name}" for name in attributes if name == "style" or name.startswith("on")]
        faults += self._find_lost_links()
        return faults

    def _find_lost_links(self) -> list[str]:
        targets = [str(one.get("href", "")) for one in self.all("a")]
        lost = [target for target in targets if target.startswith("#") and target[1:] not in self.ids()]
        return [f"{target} leads nowhere" for target in lost] + (["a link without a target"] if "" in targets else [])
