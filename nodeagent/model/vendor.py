"""What differs between vendors of GPUs where whole GPUs reach containers; each vendor's module has its values."""

from nodeagent.model.values import Value


class Vendor(Value, frozen=True):
    """A vendor of GPUs, by the names that containers, their runtime and the kernel see."""

    name: str
    """The vendor's name, as people write it."""
    cdi_domain: str
    """The first half of the CDI kinds that the device plugin hands out."""
    public_domain: str
    """The first half of the CDI kinds for people and other programs."""
    gpu_node: str
    """The device node of a GPU, with `{minor}` in place of the GPU's minor number."""
    control_nodes: tuple[str, ...]
    """The device nodes that every container with a GPU needs, in their usual order."""
    visible_devices: str
    """The variable that names a container's GPUs."""

    def find_node(self, minor: int) -> str:
        """The device node of the GPU with this minor number."""
        return self.gpu_node.format(minor=minor)
